// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/dropped_messages.h"

namespace gradmon {

std::optional<std::string> DroppedMessages::count(const std::string& why, Clock::time_point now) {
  dropped_ += 1;
  last_why_ = why;
  if (last_reported_ && now - *last_reported_ < std::chrono::minutes(1)) return {};
  last_reported_ = now;
  return warning();
}

std::string DroppedMessages::warning() const {
  if (dropped_ == 0) return "";
  return std::to_string(dropped_) + (dropped_ == 1 ? " message" : " messages") +
         " from the network dropped; the last: " + last_why_;
}

}  // namespace gradmon
