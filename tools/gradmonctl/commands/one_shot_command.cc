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

class OneShotSubcommand : public SubcommandFor<OneShotRequest> {
 public:
  explicit OneShotSubcommand(CommandVerb verb) { request().verb = verb; }
  int perform(const Console& console) override {
    return with_job(request().selector, console,
                    [&](const AskJob& ask) { return one_shot_command(request(), ask, console); });
  }
};

class CancelSubcommand : public OneShotSubcommand {
 public:
  CancelSubcommand() : OneShotSubcommand(CommandVerb::cancel) {}
  std::string usage() const override { return "cancel [RUN]"; }
  std::string summary() const override { return "Withdraw the change that is pending"; }
  Arguments arguments() override {
    Arguments arguments;
    add_job_options(arguments, request().selector);
    return arguments;
  }
};

class EvictSubcommand : public OneShotSubcommand {
 public:
  EvictSubcommand() : OneShotSubcommand(CommandVerb::evict) {}
  std::string usage() const override { return "evict RANK"; }
  std::string summary() const override { return "Drop a rank: after 15 s no change waits for it any more"; }
  Arguments arguments() override {
    Argument rank{"RANK", &request().rank, "the rank's number"};
    rank.required = true;
    rank.most = std::numeric_limits<std::int32_t>::max();
    Arguments arguments{rank};
    add_job_options(arguments, request().selector);
    return arguments;
  }
};

}  // namespace

std::unique_ptr<Subcommand> cancel_subcommand() { return std::make_unique<CancelSubcommand>(); }
std::unique_ptr<Subcommand> evict_subcommand() { return std::make_unique<EvictSubcommand>(); }

}  // namespace gradmon
