// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

namespace gradmon {

// Limits how often alerts start an action: not before `pause` has passed since they last did. Pure; one
// thread.
class AlertTrigger {
 public:
  using Time = std::chrono::milliseconds;  // of a steady clock

  // Whether an alert may start the action now. If so, the pause begins.
  bool try_fire(Time now, Time pause) {
    if (fired_ && now - *fired_ < pause) return false;
    fired_ = now;
    return true;
  }

 private:
  std::optional<Time> fired_;  // last
};

}  // namespace gradmon
