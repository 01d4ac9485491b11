// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/patient_ask.h"

#include <utility>

namespace gradmon {

AskJob patient_ask(AskJob ask, CommandClock clock) {
  return [ask = std::move(ask), clock = std::move(clock)](
             const Command& command,
             std::chrono::milliseconds timeout) -> tl::expected<CommandReply, std::string> {
    constexpr std::chrono::milliseconds pause{100};
    const auto deadline = clock.now() + timeout;
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.now());
      auto reply = ask(command, left);
      if (!reply || reply->outcome != CommandOutcome::no_lead) return reply;
      if (clock.now() + pause >= deadline) return tl::unexpected(std::move(reply->message));
      clock.sleep(pause);
    }
  };
}

}  // namespace gradmon
