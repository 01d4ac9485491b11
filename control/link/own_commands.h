// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "control/wire/command.h"

namespace gradmon {

// What this rank's program asks of the job: kept and asked again until rank 0
// answers. Agent thread only.
class OwnCommands {
 public:
  using Clock = std::chrono::steady_clock;

  // Of more than a hundred the oldest goes.
  void add(Command command);
  bool empty() const { return waiting_.empty(); }
  // Those to send now. What nobody answers within a minute of the first time is
  // logged and dropped.
  std::vector<Command> due(Clock::time_point now);
  // Logs what was refused, or done otherwise than asked.
  void answered(const std::string& request_id, const CommandReply& reply);

 private:
  struct Waiting {
    Command command;
    std::optional<Clock::time_point> first;  // asked
    Clock::time_point next;
  };
  std::vector<Waiting> waiting_;
};

}  // namespace gradmon
