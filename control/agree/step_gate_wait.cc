// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "control/agree/step_gate.h"

namespace gradmon {

// gradmon installs no signal handler, so a wait is made in slices: between two
// of them the owner sees stop() and, in Python, pending signals.
Opening StepGate::begin_or_wait(Step n, const std::function<bool()>& interrupted) {
  constexpr std::chrono::milliseconds slice{100};
  for (;;) {
    Opening opening = begin(n);
    if (!opening.wait) return opening;
    if (interrupted()) return {};
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, slice, [&] { return n < fence_; });
  }
}

}  // namespace gradmon
