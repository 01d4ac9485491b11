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
  Ticks max_wait{2'000};                  // longest wait of training for a verdict
  std::optional<double> max_overhead;     // overhead_budget.h; none: no budget
};
using PlanPtr = std::shared_ptr<const Plan>;

// Which steps a plan collects once it is effective; none where it is off.
Schedule schedule_of(const Plan& plan, Step effective);

enum class AbortReason : std::uint8_t {
  none,        // a commit
  rejected,    // a rank cannot carry the plan out: final
  no_match,    // no target matches on any rank: final
  timed_out,   // an answer was missing
  busy,        // a rank has waited too long in the last minutes
  withdrawn,   // by off, a newer change or gradmonctl cancel: final
  restarted,   // the coordinator died while it was open
  not_logged,  // the decision log could not take the verdict
};

// What was decided of a revision. A commit always carries its plan.
struct Verdict {
  Revision revision;
  PlanPtr plan;  // null: abort
  Step effective;
  AbortReason abort_reason = AbortReason::none;
  std::string reason;  // for people, of an abort

  bool commit() const { return plan != nullptr; }
};

// What a sender knows of the decisions: every revision up to `closed` is decided, and `commit` is the
// newest commit among them.
struct KnownDecisions {
  Revision closed;
  std::optional<Verdict> commit;
};

}  // namespace gradmon
