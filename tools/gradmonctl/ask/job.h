// SPDX-License-Identifier: Apache-2.0
// The seam between commands and the network: tests put a fake job here.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <tl/expected.hpp>

#include "control/wire/command.h"
#include "tools/gradmonctl/show/console.h"

namespace gradmon {

// Asks, and waits so long at most; CommandClient::ask. The error: no answer.
using AskJob =
    std::function<tl::expected<CommandReply, std::string>(const Command&, std::chrono::milliseconds)>;

// Time as the commands see it.
struct Pace {
  std::function<std::chrono::steady_clock::time_point()> now;
  std::function<void(std::chrono::milliseconds)> pause;
};

inline constexpr std::chrono::milliseconds kAnswerTime{5000};

// A question with a request id of its own and this process as its author.
Command question(CommandVerb verb);

// What to end with where there is no answer, or it is not "done"; said on
// `err`. kExitDone, and nothing is said, where there is one.
int refusal(const tl::expected<CommandReply, std::string>& reply, const Console& console);

}  // namespace gradmon
