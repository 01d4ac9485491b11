// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <memory>

#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/job.h"
#include "tools/gradmonctl/commands/status_view.h"

namespace gradmon {
namespace {

constexpr std::chrono::milliseconds kWatchPause{1000};
constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

void show(const Status& status, const StatusRequest& request, const Console& console) {
  if (request.json) {
    console.out << status_json(status, request.watch ? JsonLayout::one_line : JsonLayout::indented);
  } else {
    if (request.watch) console.out << (console.clears_screen ? kClearScreen : "");
    console.out << fit_to_screen(request.all ? std::nullopt : console.screen, status_listing(status));
    if (request.watch && !console.clears_screen) console.out << '\n';
  }
  console.out.flush();
}

}  // namespace

int status_command(const StatusRequest& request, const AskJob& ask, const CommandClock& clock,
                   const Console& console) {
  while (console.out) {
    const auto status = ask_status(ask, console);
    if (!status) return status.error();
    show(*status, request, console);
    if (!request.watch) break;
    clock.sleep(kWatchPause);
  }
  return kExitDone;
}

Subcommand status_subcommand() {
  const auto request = std::make_shared<StatusRequest>();
  return {request, "status [RUN] [--watch] [--all] [--json]",
          "Show what the job collects, and where each rank is",
          with_job_options({{"--watch", &request->watch, "again every second, until interrupted"},
                            list_all(request->all),
                            {"--json", &request->json, "one JSON object (with --watch: one a line)"}},
                           request->selector),
          [request](const Console& console) {
            return with_job(request->selector, console, [&](const AskJob& ask) {
              return status_command(*request, ask, system_clock(), console);
            });
          }};
}

}  // namespace gradmon
