// SPDX-License-Identifier: Apache-2.0
// A plan, its schedule and the verdict on it. Values.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/config/file_content.h"
#include "control/aliases.h"
#include "control/step.h"

namespace gradmon {

struct Config;

// The collected steps: t if and only if t ≥ first, (t − first) mod interval = 0 and
// (t − first) / interval < times. They depend on the verdict alone, never on a rank's progress, so that all
// ranks stop at the same step by themselves.
class Schedule {
 public:
  Schedule() = default;  // collects nothing
  // interval ≥ 1, times ≥ 0.
  Schedule(Step first, std::int64_t interval, std::int64_t times)
      : first_(first), interval_(interval), times_(times) {}

  Step first() const { return first_; }
  std::int64_t interval() const { return interval_; }
  std::int64_t times() const { return times_; }

  bool collects(Step t) const;
  // The number of collected steps before t.
  std::int64_t collected_before(Step t) const;
  // The step after the last collected one; `first` if none is collected.
  Step end() const;
  // The last collected step; -1 if none is collected.
  Step last() const { return times_ > 0 ? Step{end().value - 1} : Step{-1}; }
  // Numbers the fields for the wire (control/wire/field_codec.h).
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.first_);
    visit(2, self.interval_);
    visit(3, self.times_);
  }
  // The least step ≥ t whose boundary has work to do: a collected step, the step after a collected one,
  // or the end. kNever after the end.
  Step next_change(Step t) const;

 private:
  Step first_;
  std::int64_t interval_ = 1;
  std::int64_t times_ = 0;
};

// Static mode (DYNAMIC_MONITOR unset): the first step t ≥ max(start_step,
// start_iteration) with (t − start_step) mod interval = 0, then the formula above.
Schedule static_schedule(Step start_step, Step start_iteration, std::int64_t interval, std::int64_t times);

// Time for the state machines, of a steady clock with any origin.
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
  Step at;  // collects no step before this one
  // The schedule of the plan that this one replaces, if gradmon itself replaces a plan that has not ended.
  // This plan collects as many steps as that schedule still had left.
  std::optional<Schedule> continues;
  std::optional<FileIdentity> file;  // the save of the config file that it came from; none: not from the file
  Cause cause = Cause::file;
  std::string by;                         // the requester: the file's path, or "user@host pid 123"
  std::string request_id;                 // of the command, "" for none
  std::optional<std::int64_t> lookahead;  // steps to the fence, if the user has set it
  Ticks max_wait{2'000};                  // longest time that training waits for a verdict
  std::optional<double> max_overhead;     // a share, see overhead_budget.h; none: no limit
  // Set for a capture, the richer plan that an alert has started: the plan that follows when it ends, with
  // its schedule in `continues`. A capture has no `file`, so that its end writes nothing.
  std::shared_ptr<const Plan> returns_to;
  std::shared_ptr<const Config> config;  // of that text; null: this process has not parsed it
};
using PlanPtr = std::shared_ptr<const Plan>;

// A plan made from a config text. `dynamic_on` turns the plan on or off.
struct PlanSource {
  std::shared_ptr<Plan> plan;  // the caller sets cause, by, request_id and file
  std::vector<std::string> warnings;
  std::vector<std::string> unknown;  // ConfigWarning::unknown of the warnings that have it

  const Config& config() const { return *plan->config; }
};

// The error lists all errors of the text, one per line. A content that ConfigFile has parsed is not parsed
// again.
Result<PlanSource> plan_from_config(const std::string& text, const std::string& file_name);
Result<PlanSource> plan_from_config(const FileContent& content, const std::string& file_name);

// True if the user proposed the plan, not gradmon itself.
bool is_of_user(const Plan& plan);

// The steps that a plan collects if it takes effect at `effective`; none if it is off.
Schedule schedule_of(const Plan& plan, Step effective);

// The save of the config file that the plan came from; for a capture, the save of the plan it returns to.
const std::optional<FileIdentity>& config_save(const Plan& plan);

// The steps of the schedule that remain at step `since`, to be collected later: for Plan::continues.
Schedule left_at(const Schedule& schedule, Step since);

enum class AbortReason : std::uint8_t {
  none,        // a commit
  rejected,    // a rank cannot carry the plan out: final
  no_match,    // no target matches on any rank: final
  timed_out,   // an answer was missing
  busy,        // training on a rank has waited too long for verdicts in the last ten minutes
  withdrawn,   // by off, a newer change or gradmonctl cancel: final
  restarted,   // the coordinator died while it was open
  not_logged,  // the verdict could not be written to the decision log
};

// The decision on a revision. A commit always carries its plan.
struct Verdict {
  Revision revision;
  PlanPtr plan;  // null: abort
  Step effective;
  AbortReason abort_reason = AbortReason::none;
  std::string reason;  // the reason of an abort, for people

  bool commit() const { return plan != nullptr; }
};

// A sender's knowledge of the decisions: every revision up to `closed` is decided, and `commit` is the newest
// commit among them.
struct KnownDecisions {
  Revision closed;
  std::optional<Verdict> commit;
};

}  // namespace gradmon
