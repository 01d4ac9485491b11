// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <cstdint>
#include <limits>
#include <memory>

#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/connect.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {

int one_shot_command(const OneShotRequest& request, const AskJob& ask, const Console& console) {
  Command command = make_command(request.verb);
  command.rank = request.rank;
  const auto reply = ask(command, kAnswerTime);
  if (const int code = report_failure(reply, console); code != kExitDone) return code;
  if (!reply->message.empty())
    console.err << "gradmonctl: " << printable_lines(reply->message, "\n  ") << '\n';
  return kExitDone;
}

namespace {

int perform(const OneShotRequest& request, const Console& console) {
  return with_job(request.selector, console,
                  [&](const AskJob& ask) { return one_shot_command(request, ask, console); });
}

}  // namespace

std::unique_ptr<Subcommand> cancel_subcommand() {
  return std::make_unique<PlainSubcommand<OneShotRequest>>(
      "cancel [RUN]", "Withdraw the change that is pending",
      [](OneShotRequest& request) -> Arguments { return with_job_options({}, request.selector); }, &perform);
}

std::unique_ptr<Subcommand> evict_subcommand() {
  return std::make_unique<PlainSubcommand<OneShotRequest>>(
      "evict RANK", "Drop a rank: after 15 s no change waits for it any more",
      [](OneShotRequest& request) -> Arguments {
        request.verb = CommandVerb::evict;
        Argument rank{"RANK", &request.rank, "the rank's number"};
        rank.required = true;
        rank.most = std::numeric_limits<std::int32_t>::max();
        return with_job_options({rank}, request.selector);
      },
      &perform);
}

}  // namespace gradmon
