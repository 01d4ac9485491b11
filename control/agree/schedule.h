// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "control/step.h"

namespace gradmon {

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

}  // namespace gradmon
