// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace gradmon {

// Counts messages from the network that were dropped, and gives a line to log at most once a minute, so that
// foreign peers cannot fill the log. One thread.
class DroppedMessages {
 public:
  using Clock = std::chrono::steady_clock;

  // `why` must contain nothing of the message. Returns the line to log, if one is due.
  std::optional<std::string> count(const std::string& why, Clock::time_point now);
  // "" or a line for the status.
  std::string warning() const;

 private:
  std::uint64_t dropped_ = 0;
  std::string last_why_;
  std::optional<Clock::time_point> last_reported_;
};

}  // namespace gradmon
