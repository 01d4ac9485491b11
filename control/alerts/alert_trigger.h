// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

namespace gradmon {

// Limits how often alerts start an action: `pause` must have passed since the last start. Pure; one thread.
class AlertTrigger {
 public:
  using Time = std::chrono::milliseconds;  // of a steady clock

  // Returns true if an alert may start the action now; then the pause begins.
  bool try_fire(Time now, Time pause) {
    if (fired_ && now - *fired_ < pause) return false;
    fired_ = now;
    return true;
  }

 private:
  std::optional<Time> fired_;  // last start
};

}  // namespace gradmon
