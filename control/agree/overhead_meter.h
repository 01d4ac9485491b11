// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>

#include "control/agree/overhead.h"

namespace gradmon {

// Measures what monitoring takes of a rank's training thread:
//
//   share = (time spent in monitoring during the window) / (wall time of the window)
//
// Time spent is gradmon's own inside its calls and hooks on a collected step,
// the wait for a place in a full queue included; not the wait for a verdict, and
// not what is done once a plan (attaching). The window is the last eight rounds,
// fewer until there are so many. A round begins with a collected step and ends
// where the next one begins: one whole interval, so that the steps between,
// which cost nothing, count as the training time that they are. A plan's first
// round warms up (directories, files, buffers) and does not count.
//
// No clock of its own: times are values, of a steady clock with any origin. The
// training thread's.
class OverheadMeter {
 public:
  using Time = std::chrono::nanoseconds;
  static constexpr std::int64_t kWindow = 8;

  // Another plan is in force: nothing is known of it yet.
  void begin_plan(Revision revision);
  // The boundary before a collected step. `spent`: since the last such call.
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
