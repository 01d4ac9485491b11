// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "control/wire/command.h"

namespace gradmon {

// The commands that this rank's program has given to the job. Each is sent again every second until the
// lead hub answers. Agent thread only.
class PendingCommands {
 public:
  using Clock = std::chrono::steady_clock;

  // Keeps at most 100 commands: a further command drops the oldest and logs it.
  void add(Command command, Clock::time_point now);
  // Logs and drops the commands without an answer 60 s after add().
  void drop_expired(Clock::time_point now);
  // Returns the commands to send now.
  std::vector<Command> due(Clock::time_point now);
  // Removes the command. Logs a refusal, and any message of a reply to a command that was carried out.
  void answered(const std::string& request_id, const CommandReply& reply);

 private:
  struct Waiting {
    Command command;
    Clock::time_point added;
    Clock::time_point next;  // the time to send it again
  };
  std::vector<Waiting> waiting_;
};

}  // namespace gradmon
