// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "control/net/command.h"

namespace gradmon {

// What this rank's program asks of the job: kept and asked again until rank 0
// answers. Agent thread only.
class OwnCommands {
 public:
  using Clock = std::chrono::steady_clock;

  void add(Command command, Clock::time_point now) { waiting_.push_back({std::move(command), now, now}); }
  bool empty() const { return waiting_.empty(); }
  // Those to send now. What nobody answers within a minute is logged and dropped.
  std::vector<Command> due(Clock::time_point now);
  // Logs what was refused.
  void answered(const std::string& request_id, const CommandReply& reply);

 private:
  struct Waiting {
    Command command;
    Clock::time_point asked;
    Clock::time_point next;
  };
  std::vector<Waiting> waiting_;
};

}  // namespace gradmon
