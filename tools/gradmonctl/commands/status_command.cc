// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/status_command.h"

#include <memory>

#include "tools/gradmonctl/ask/connect.h"
#include "tools/gradmonctl/commands/status_view.h"
#include "tools/gradmonctl/parse/subcommand.h"

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
      console.err << "gradmonctl: the job's answer has no status\n";
      return kExitFailed;
    }
    show(*reply->status, request, console);
    if (!request.watch) break;
    pace.pause(kWatchPause);
  }
  return kExitDone;
}

namespace {

class StatusSubcommand : public SubcommandFor<StatusRequest> {
 public:
  std::string usage() const override { return "status [--watch] [--all] [--json]"; }
  std::string summary() const override { return "Show what the job collects, and where each rank is"; }
  Arguments arguments() override {
    Arguments arguments{{"--watch", &request().watch, "again every second, until interrupted"},
                        list_all(request().all),
                        {"--json", &request().json, "one JSON object (with --watch: one a line)"}};
    add_place(arguments, request().place);
    return arguments;
  }
  int perform(const Console& console) override {
    return with_job(request().place, console,
                    [&](const AskJob& ask) { return status_command(request(), ask, real_pace(), console); });
  }
};

}  // namespace

std::unique_ptr<Subcommand> status_subcommand() { return std::make_unique<StatusSubcommand>(); }

}  // namespace gradmon
