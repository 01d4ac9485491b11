// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include "control/step.h"

namespace gradmon {

// The mean duration of the last steps. One thread; the caller passes the time.
class StepPace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  StepPace(Step current, Time now) : step_(current), since_(now), last_(current) {}

  // Call it often. Measures whole steps, over at least half a second.
  void look(Step current, Time now) {
    const bool begins = current != last_;
    last_ = current;
    const std::int64_t steps = current - step_;
    if (!begins || steps <= 0 || now - since_ < kMeasureOver) return;
    step_ms_ = std::chrono::duration<double, std::milli>(now - since_).count() / static_cast<double>(steps);
    step_ = current;
    since_ = now;
  }
  // 0 until a step has ended.
  double step_ms() const { return step_ms_; }

 private:
  static constexpr std::chrono::milliseconds kMeasureOver{500};

  Step step_;   // at `since_`
  Time since_;  // the last measurement
  Step last_;   // at the last look
  double step_ms_ = 0;
};

}  // namespace gradmon
