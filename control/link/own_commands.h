// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "control/wire/command.h"

namespace gradmon {

// The commands that this rank's program has given to the job. Each is sent again every second until the
// lead hub answers. Agent thread only.
class OwnCommands {
 public:
  using Clock = std::chrono::steady_clock;

  // Keeps at most 100 commands: a further one drops the oldest, which is logged.
  void add(Command command);
  bool empty() const { return waiting_.empty(); }
  // Returns the commands to send now. A command without an answer 60 s after it was first sent is logged
  // and dropped.
  std::vector<Command> due(Clock::time_point now);
  // Removes the command. Logs a refusal, and any message of a reply to a command that was carried out.
  void answered(const std::string& request_id, const CommandReply& reply);

 private:
  struct Waiting {
    Command command;
    std::optional<Clock::time_point> first;  // when it was first sent
    Clock::time_point next;                  // when it is due again
  };
  std::vector<Waiting> waiting_;
};

}  // namespace gradmon
