// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include "control/agree/step_gate.h"

namespace gradmon {

// gradmon installs no signal handler, so a wait is made in slices: between two
// of them the owner sees stop() and, in Python, pending signals. The trainer
// itself counts how long it has stood: its agent may hang.
Opening StepGate::begin_or_wait(Step n, const Clock& clock, const std::function<bool()>& interrupted) {
  constexpr std::chrono::milliseconds slice{100};
  for (;;) {
    const Ticks now = clock();
    Opening opening = begin(n, now);
    if (!opening.wait) return opening;
    if (interrupted()) {
      lapse();
      return begin(n, now);
    }
    std::unique_lock lock(mutex_);
    const Ticks left = standing_since_ ? max_wait_ - (now - *standing_since_) : max_wait_;
    changed_.wait_for(lock, std::min<Ticks>(slice, std::max(left, Ticks{1})), [&] { return n < fence_; });
  }
}

}  // namespace gradmon
