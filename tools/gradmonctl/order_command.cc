// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/order_command.h"

#include "tools/gradmonctl/printable.h"

namespace gradmon {

int order_command(const OrderRequest& request, const AskJob& ask, const Console& console) {
  Command command = question(request.verb);
  command.rank = request.rank;
  const auto reply = ask(command, kAnswerTime);
  if (const int code = refusal(reply, console); code != kExitDone) return code;
  if (!reply->message.empty())
    console.err << "gradmonctl: " << printable_lines(reply->message, "\n  ") << '\n';
  return kExitDone;
}

}  // namespace gradmon
