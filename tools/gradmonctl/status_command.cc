// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/status_command.h"

#include "tools/gradmonctl/status_json.h"
#include "tools/gradmonctl/status_text.h"

namespace gradmon {
namespace {

constexpr std::chrono::milliseconds kWatchPause{1000};
constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

void show(const Status& status, const StatusRequest& request, const Console& console) {
  if (request.json) {
    console.out << status_json(status, request.watch ? JsonLayout::one_line : JsonLayout::indented);
  } else {
    if (request.watch) console.out << (console.clears_screen ? kClearScreen : "");
    console.out << text_on(request.all ? std::nullopt : console.screen, status_listing(status));
    if (request.watch && !console.clears_screen) console.out << '\n';
  }
  console.out.flush();
}

}  // namespace

int status_command(const StatusRequest& request, const AskJob& ask, const Pace& pace,
                   const Console& console) {
  while (console.out) {
    const auto reply = ask(question(CommandVerb::status), kAnswerTime);
    if (const int code = refusal(reply, console); code != kExitDone) return code;
    if (!reply->status) {
      console.err << "gradmonctl: the job's answer holds no status\n";
      return kExitFailed;
    }
    show(*reply->status, request, console);
    if (!request.watch) break;
    pace.pause(kWatchPause);
  }
  return kExitDone;
}

}  // namespace gradmon
