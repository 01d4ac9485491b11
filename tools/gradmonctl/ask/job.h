// SPDX-License-Identifier: Apache-2.0
// The interface between commands and the network; tests substitute a fake job.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <tl/expected.hpp>

#include "control/wire/command.h"
#include "tools/gradmonctl/cli/console.h"

namespace gradmon {

// Sends a command and waits for the reply, at most for the given time, as CommandClient::ask does. The error:
// no answer.
using AskJob =
    std::function<tl::expected<CommandReply, std::string>(const Command&, std::chrono::milliseconds)>;

// The clock of the commands; tests substitute a fake.
struct CommandClock {
  std::function<std::chrono::steady_clock::time_point()> now;
  std::function<void(std::chrono::milliseconds)> sleep;
};

inline constexpr std::chrono::milliseconds kAnswerTime{5000};

// A new command with a random request id and this process as its author.
Command make_command(CommandVerb verb);

// The exit code for a reply. Without an answer, or if its outcome is not "done", prints the cause to
// `console.err`; otherwise prints nothing and returns kExitDone.
int report_failure(const tl::expected<CommandReply, std::string>& reply, const Console& console);

// Asks for the status. The error is the exit code; the cause has been printed to `console.err`.
tl::expected<Status, int> ask_status(const AskJob& ask, const Console& console);

}  // namespace gradmon
