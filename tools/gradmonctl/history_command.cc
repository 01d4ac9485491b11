// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/history_command.h"

#include "tools/gradmonctl/history_json.h"
#include "tools/gradmonctl/history_text.h"
#include "tools/gradmonctl/printable.h"

namespace gradmon {
namespace {

int show(const std::vector<HistoryEntry>& history, const HistoryRequest& request, const Console& console) {
  const auto screen = request.all ? std::nullopt : console.screen;
  console.out << (request.json ? history_json(history, JsonLayout::indented)
                               : text_on(screen, history_listing(history)));
  return kExitDone;
}

}  // namespace

int history_command(const HistoryRequest& request, const AskJob& ask, const HistoryFiles& files,
                    const Console& console) {
  const auto reply = ask(question(CommandVerb::history), kAnswerTime);
  if (reply) {
    const int code = refusal(reply, console);
    return code == kExitDone ? show(reply->history, request, console) : code;
  }
  const auto history = files();
  console.err << "gradmonctl: " << printable(reply.error()) << "; "
              << (history ? "this is what the job's files tell" : printable(history.error())) << '\n';
  return history ? show(*history, request, console) : kExitNoAnswer;
}

}  // namespace gradmon
