// SPDX-License-Identifier: Apache-2.0
// What is to happen (`Plan`) and what was decided of it (`Verdict`). Values.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "control/agree/schedule.h"
#include "control/config/file_identity.h"
#include "control/step.h"

namespace gradmon {

// Time as the state machines see it: of a steady clock with any origin.
using Ticks = std::chrono::milliseconds;

enum class Cause : std::uint8_t { start, file, ctl, resync, retry, alert, budget };
const char* name_of(Cause cause);

// A config plus on or off. Immutable once proposed.
struct Plan {
  bool on = false;
  std::string config_text;    // the whole config file, valid
  std::string config_sha256;  // of that text
  std::int64_t collect_times = 0;
  std::int64_t step_interval = 1;
  Step at;  // not before this step
  // Set where gradmon itself replaces a plan that had not ended: what that one
  // had not yet collected before the new effective step is collected.
  std::optional<Schedule> continues;
  std::optional<FileIdentity> file;  // the save it is from; none where it is not from the file
  Cause cause = Cause::file;
  std::string by;                         // who asked: the file's path, or "user@host pid 123"
  std::string request_id;                 // of the command, "" for none
  std::optional<std::int64_t> lookahead;  // H where the user has chosen it
  Ticks fence_timeout{30'000};
  bool wait_on_partition = false;
  std::optional<double> max_overhead;  // overhead_budget.h; none: no budget
};
using PlanPtr = std::shared_ptr<const Plan>;

// Which steps a plan collects once it is effective; none where it is off.
Schedule schedule_of(const Plan& plan, Step effective);

enum class AbortReason : std::uint8_t {
  none,       // a commit
  rejected,   // a rank cannot carry the plan out: final
  no_match,   // no target matches on any rank: final
  timed_out,  // a Ready was missing
  doubt,      // a rank stood unheard at its fence
  came_back,  // a rank that had crashed closed what was open
};

// What the register holds for a revision. A commit always carries its plan.
struct Verdict {
  Revision revision;
  PlanPtr plan;  // null: abort
  Step effective;
  AbortReason abort_reason = AbortReason::none;
  std::string reason;  // for people, of an abort
  std::string author;  // who wrote it: unique to a process

  bool commit() const { return plan != nullptr; }
};

// Where an epoch keeps its register; settled once, before anything is proposed.
enum class Home : std::uint8_t { undecided, directory, store };
const char* name_of(Home home);  // "" while undecided

// How much of the order of revisions somebody knows: every revision up to
// `closed` is decided, and of those `commit` is the newest that holds.
struct LastWord {
  Revision closed;
  std::optional<Verdict> commit;
  Home home = Home::undecided;
};

}  // namespace gradmon
