// SPDX-License-Identifier: Apache-2.0
// The script of one simulated history, as values: what the user asks for, and what
// goes wrong. It does not contain the fate of single messages: Dice decide that,
// from the seed.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradmon {

// Random numbers from a seed: the same on every machine, unlike those of std::uniform_*_distribution.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
  }
  // least ≤ result ≤ most.
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool chance(std::int64_t per_mille) { return between(0, 999) < per_mille; }
  // Log-uniform: small numbers are frequent, large ones rare.
  std::int64_t log_uniform(double least, double most) {
    const double share = static_cast<double>(next() >> 11) * 0x1.0p-53;
    return static_cast<std::int64_t>(least * std::pow(most / least, share));
  }

 private:
  std::uint64_t state_;
};

struct Incident {
  enum class Kind {
    propose,       // the user changes the plan
    stop_trainer,  // training takes no step for `lasts`
    stop_agent,    // the agent thread does not run for `lasts`
    stop_process,  // SIGSTOP, SIGCONT after `lasts`
    crash,         // a new process starts after `lasts`, if that is not 0
    leave,         // the rank finishes training early
    cut_up,        // messages from this rank do not arrive, for `lasts`
    cut_down,      // messages to this rank do not arrive, for `lasts`
    reconnect,     // the rank's connection ends and a new one begins
    storm,         // `lose`, `twice` and `delay` hold for all messages, for `lasts`
    costs,         // monitoring takes `cost` more of this rank's collected steps, for `lasts`
    twin,          // a second process takes this rank's number, for `lasts`
    evict,         // by the user
    cancel,        // by the user: cancels the waiting or open change
    stop_hub,      // SIGSTOP of the coordinator, for `lasts`
    hub_dies,      // restarts after `lasts`, with its log if `keeps`
    log_fails,     // the decision log cannot be written, for `lasts`
    alert,         // starts a capture, if the coordinator may capture
  };

  Kind kind = Kind::propose;
  std::int64_t at = 0;  // ms since the history began
  std::int64_t rank = -1;
  std::int64_t lasts = 0;  // ms
  // For a proposal and for an alert: interval, times and answer of the capture's plan.
  std::int64_t on = 0;
  std::int64_t interval = 1;
  std::int64_t times = 1;
  std::int64_t later = 0;      // Plan::at, in steps after the furthest rank; 0: unset
  std::int64_t lookahead = 0;  // 0: the coordinator chooses
  std::int64_t max_wait = 2000;
  std::int64_t budget = 0;  // max_overhead, per mille; 0: none
  std::int64_t answer = 0;  // 0: all ranks match; 1: `rank` rejects; 2: none matches; 3: only `rank` matches
  // For a cut: 1: messages arrive after it; 0: they are lost. For hub_dies: 1: the log survives.
  std::int64_t keeps = 0;
  // For a storm: per mille, per mille, ms.
  std::int64_t lose = 0;
  std::int64_t twice = 0;
  std::int64_t delay = 0;
  std::int64_t behind = 0;  // of a crash: the new process resumes this many steps earlier
  // For costs: per mille of the rank's step time.
  std::int64_t cost = 0;
};

struct Script {
  std::uint64_t seed = 0;
  std::int64_t world = 2;
  std::int64_t coupled = 0;  // 1: each step has a collective
  std::int64_t first_step = 0;
  std::int64_t calm_from = 0;  // ms; no incident goes on after it
  std::vector<std::int64_t> step_ms;
  std::vector<std::int64_t> joins;  // ms, of each rank's first process
  std::vector<Incident> starts;     // one proposal if the epoch starts on, else empty
  std::vector<Incident> incidents;  // sorted by `at`
};

const char* name_of(Incident::Kind kind);

// One line for each field and each incident. Incidents omit fields that have their default.
std::string to_text(const Script& script);
tl::expected<Script, std::string> script_from_text(const std::string& text);

// Generates the script of a seed.
Script script_of(std::uint64_t seed);

// A smaller script that still fails. Delta debugging: leaves out halves of the
// incidents, then quarters, … then single ones, until none can be left out. Also
// simplifies the job. Calls `fails` for each attempt.
Script shrink(Script script, const std::function<bool(const Script&)>& fails);

}  // namespace gradmon
