// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace gradmon {

// Counts what came by the network and made no sense, and says so at most once a
// minute: strangers must not fill the log. One thread.
class DroppedMessages {
 public:
  using Clock = std::chrono::steady_clock;

  // `why` holds nothing of the message. The line to log, where one is due.
  std::optional<std::string> count(const std::string& why, Clock::time_point now);
  // "" or a line for the status.
  std::string warning() const;

 private:
  std::uint64_t dropped_ = 0;
  std::string last_why_;
  std::optional<Clock::time_point> last_reported_;
};

}  // namespace gradmon
