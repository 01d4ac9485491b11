// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/job.h"

#include <pwd.h>
#include <unistd.h>

#include <array>

#include "control/host/process_identity.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

std::string author() {
  const passwd* user = getpwuid(geteuid());
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return (user != nullptr ? std::string(user->pw_name) : "uid " + std::to_string(geteuid())) + "@" +
         host.data() + " pid " + std::to_string(getpid());
}

}  // namespace

Command make_command(CommandVerb verb) {
  Command command;
  command.verb = verb;
  command.request_id = random_hex(16);
  command.by = author();
  return command;
}

int report_failure(const tl::expected<CommandReply, std::string>& reply, const Console& console) {
  if (!reply) {
    console.err << "gradmonctl: " << printable_lines(reply.error(), "\n  ") << '\n';
    return kExitNoAnswer;
  }
  if (reply->outcome == CommandOutcome::done) return kExitDone;
  console.err << "gradmonctl: "
              << (reply->message.empty() ? "the job refused" : printable_lines(reply->message, "\n  "))
              << '\n';
  return static_cast<int>(reply->outcome);
}

tl::expected<Status, int> ask_status(const AskJob& ask, const Console& console) {
  auto reply = ask(make_command(CommandVerb::status), kAnswerTime);
  if (const int code = report_failure(reply, console); code != kExitDone) return tl::make_unexpected(code);
  if (reply->status) return std::move(*reply->status);
  console.err << "gradmonctl: the job's answer has no status\n";
  return tl::make_unexpected(kExitFailed);
}

}  // namespace gradmon
