// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/change_command.h"

#include <algorithm>

#include "tools/gradmonctl/printable.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kVerdictPause{50};

class VerdictWait {
 public:
  VerdictWait(const ChangeRequest& request, const AskJob& ask, const Pace& pace, const Console& console)
      : timeout_(request.timeout), ask_(ask), pace_(pace), console_(console), ends_(pace.now() + timeout_) {}

  int wait(Command command, CommandReply reply) {
    command.verb = CommandVerb::verdict;
    while (!(reply.settled && reply.applied_by_all)) {
      if (left() <= milliseconds(0)) return too_late(reply);
      pace_.pause(std::min(kVerdictPause, left()));
      const milliseconds patience = std::clamp(left(), milliseconds(1), kAnswerTime);
      auto next = ask_(command, patience);
      if (!next && patience < kAnswerTime) continue;  // It is time that has run out.
      if (const int code = refusal(next, console_); code != kExitDone) return code;
      reply = std::move(*next);
    }
    if (reply.effective_step >= 0) console_.out << reply.effective_step << '\n';
    return kExitDone;
  }

 private:
  milliseconds left() const { return std::chrono::ceil<milliseconds>(ends_ - pace_.now()); }

  int too_late(const CommandReply& reply) const {
    std::string why = reply.message;
    const auto status = ask_(question(CommandVerb::status), milliseconds(1000));
    if (status && status->status && status->status->pending) why = status->status->pending->reason;
    console_.err << "gradmonctl: "
                 << (reply.settled ? "agreed for step " + std::to_string(reply.effective_step) +
                                         ", but not applied by every rank"
                                   : "not agreed")
                 << " within " << timeout_.count() << " s"
                 << (why.empty() ? "" : ": " + printable_lines(why, "; ")) << '\n';
    return kExitPartial;
  }

  const std::chrono::seconds timeout_;
  const AskJob& ask_;
  const Pace& pace_;
  const Console& console_;
  const std::chrono::steady_clock::time_point ends_;
};

Command command_of(const ChangeRequest& request) {
  Command command = request.command;
  const Command asked = question(command.verb);
  command.request_id = asked.request_id;
  command.by = asked.by;
  return command;
}

}  // namespace

int change_command(const ChangeRequest& request, const AskJob& ask, const Pace& pace,
                   const Console& console) {
  const Command command = command_of(request);
  VerdictWait verdict(request, ask, pace, console);
  auto reply = ask(command, kAnswerTime);
  if (const int code = refusal(reply, console); code != kExitDone) return code;
  if (!reply->message.empty())
    console.err << "gradmonctl: " << printable_lines(reply->message, "\n  ") << '\n';
  if (request.wait) return verdict.wait(command, std::move(*reply));
  if (!reply->settled) console.err << "gradmonctl: asked for; --wait tells when every rank obeys\n";
  return kExitDone;
}

}  // namespace gradmon
