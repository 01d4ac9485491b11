// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/bounded_ask.h"

#include <utility>

#include "control/wire/messages.h"

namespace gradmon {

AskJob bounded_ask(AskJob ask) {
  return
      [ask = std::move(ask)](const Command& command,
                             std::chrono::milliseconds timeout) -> tl::expected<CommandReply, std::string> {
        const std::size_t size = encode(Frame(command)).size();
        if (size <= kMaxFrameBytes) return ask(command, timeout);
        CommandReply refused;
        refused.outcome = CommandOutcome::failed;
        refused.message = "too large: the command takes " + std::to_string(size) + " bytes, a job accepts " +
                          std::to_string(kMaxFrameBytes) + "; nothing was sent";
        return refused;
      };
}

}  // namespace gradmon
