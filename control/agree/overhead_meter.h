// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>

#include "control/agree/overhead.h"

namespace gradmon {

// Measures the share of a rank's training time that monitoring takes:
//
//   share = (time spent in monitoring during the window) / (wall time of the window)
//
// Time spent: gradmon's calls and hooks in collected steps, including the wait for a place in a full
// queue. It excludes the wait for a verdict and the work done once per plan (attaching).
// A round is one whole interval: from the beginning of a collected step to the beginning of the next one,
// including the steps between, which cost nothing. The window is the last eight rounds, or fewer at first.
// A plan's first round is warm-up (directories, files, buffers) and does not count.
//
// Used on the training thread. The caller passes the time, of a steady clock with any origin.
class OverheadMeter {
 public:
  using Time = std::chrono::nanoseconds;
  static constexpr std::int64_t kWindow = 8;

  // Another plan is in force: drops all measurements.
  void begin_plan(Revision revision);
  // Call it at the boundary before a collected step. `spent`: time spent since the last call.
  void begin_collected(Step step, Time now, Time spent);
  const Overhead& measured() const { return measured_; }

 private:
  struct Round {
    Time spent{};
    Time wall{};
    std::int64_t steps = 0;
  };
  struct Begin {
    Step step;
    Time at;
  };

  Overhead measured_;
  std::array<Round, kWindow> rounds_;
  std::optional<Begin> begun_;
  bool warm_ = false;
};

}  // namespace gradmon
