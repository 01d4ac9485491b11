// SPDX-License-Identifier: Apache-2.0
// What happens to a job in one simulated history, as values: what the user asks
// for, and what goes wrong. The fate of single messages is not in it: that is
// thrown with dice from the seed.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradmon {

struct Incident {
  enum class Kind {
    propose,       // the user changes the plan
    stop_trainer,  // one long step, for `lasts`
    stop_agent,    // its control thread gets no time
    stop_process,  // SIGSTOP, SIGCONT after `lasts`
    crash,         // comes back after `lasts`, if that is not 0
    leave,         // finishes early
    cut_up,        // nothing arrives that this rank says
    cut_down,      // nothing arrives that is said to this rank
    reconnect,     // its connection ends and another is made
    storm,         // lose, twice and delay are these, for `lasts`
    costs,         // a collected step of this rank takes more of its time, for `lasts`
    twin,          // a second process takes this rank's number, for `lasts`
    evict,         // by the user
    cancel,        // likewise
    stop_hub,      // SIGSTOP of the coordinator, for `lasts`
    hub_dies,      // comes back after `lasts`; with its log where `keeps`
    log_fails,     // the decision log cannot be written, for `lasts`
  };

  Kind kind = Kind::propose;
  std::int64_t at = 0;  // ms since the history began
  std::int64_t rank = -1;
  std::int64_t lasts = 0;  // ms
  // Of a proposal.
  std::int64_t on = 0;
  std::int64_t interval = 1;
  std::int64_t times = 1;
  std::int64_t later = 0;      // `at` is so many steps ahead; 0: none
  std::int64_t lookahead = 0;  // 0: chosen by itself
  std::int64_t max_wait = 2000;
  std::int64_t budget = 0;  // max_overhead, per mille; 0: none
  std::int64_t answer = 0;  // 0 matches everywhere, 1 rejected by `rank`, 2 matches nowhere, 3 only on `rank`
  // Of a cut: messages arrive when it ends, and are not lost.
  std::int64_t keeps = 0;
  // Of a storm: per mille, per mille, ms.
  std::int64_t lose = 0;
  std::int64_t twice = 0;
  std::int64_t delay = 0;
  std::int64_t behind = 0;  // of a crash: it comes back so many steps behind
  // Of costs: per mille of the time of a step.
  std::int64_t cost = 0;
};

struct Script {
  std::uint64_t seed = 0;
  std::int64_t world = 2;
  std::int64_t coupled = 0;  // a collective in each step
  std::int64_t first_step = 0;
  std::int64_t calm_from = 0;  // ms; nothing goes wrong after it
  std::vector<std::int64_t> step_ms;
  std::vector<std::int64_t> joins;  // ms
  std::vector<Incident> starts;     // with one proposal: the epoch starts on; else empty
  std::vector<Incident> incidents;  // by `at`
};

const char* name_of(Incident::Kind kind);

// One line a field, one an incident; what has its default is left out.
std::string to_text(const Script& script);
tl::expected<Script, std::string> script_from_text(const std::string& text);

}  // namespace gradmon
