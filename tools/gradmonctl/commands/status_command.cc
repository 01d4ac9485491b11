// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <memory>

#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/job.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/commands/status_view.h"

namespace gradmon {
namespace {

constexpr std::chrono::milliseconds kWatchPause{1000};
constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

void show(const Status& status, const ShowRequest& request, const Console& console) {
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

int status_command(const ShowRequest& request, const AskJob& ask, const CommandClock& clock,
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
  const auto request = std::make_shared<ShowRequest>();
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

namespace {

constexpr std::chrono::milliseconds kStatePause{1000};
constexpr int kPausesBeforeAsking = 3;
constexpr const char* kHome = "\x1b[H";
constexpr const char* kClearLine = "\x1b[K";
constexpr const char* kClearBelow = "\x1b[J";

class View {
 public:
  View(const ShowRequest& request, const LiveJob& job, const Console& console)
      : json_(request.json), job_(job), console_(console) {}

  void show(const Status& status) {
    if (json_) {
      console_.out << status_json(status, JsonLayout::one_line);
    } else if (console_.clears_screen) {
      Listing listing = status_listing(status);
      listing.all = "gradmonctl status --all shows all";
      redraw(fit_to_screen(console_.screen, listing));
    } else if (std::string line = status_line(status); line != last_line_) {
      console_.out << utc_text(job_.now()) << "  " << line << '\n';
      last_line_ = std::move(line);
    }
    console_.out.flush();
  }

 private:
  // Overwrites the old text: clearing the screen first would flicker.
  void redraw(const std::string& text) const {
    console_.out << kHome;
    for (const char c : text) {
      if (c == '\n') console_.out << kClearLine;
      console_.out << c;
    }
    console_.out << kClearBelow;
  }

  const bool json_;
  const LiveJob& job_;
  const Console& console_;
  std::string last_line_;
};

}  // namespace

int watch_command(const ShowRequest& request, const LiveJob& job, const Console& console) {
  View view(request, job, console);
  auto status = ask_status(job.ask, console);
  if (!status) return status.error();
  view.show(*status);
  bool complained = false;
  int gone = 0;
  for (int silent = 0; console.out && !job.interrupted();) {
    if (const auto state = job.next_state(kStatePause)) {
      view.show(*state);
      silent = 0;
      gone = 0;
      complained = false;
      continue;
    }
    const std::optional<bool> lives = job.lives();
    gone = lives == false ? gone + 1 : 0;
    if (gone == kLooksBeforeEnd) {
      console.err << "gradmonctl: the job has ended\n";
      return kExitDone;
    }
    if (gone > 0) continue;
    if (++silent < kPausesBeforeAsking || complained || job.interrupted()) continue;
    status = ask_status(job.ask, console);
    if (status) {
      view.show(*status);
      silent = 0;
    } else if (!lives) {
      return status.error();
    } else {
      console.err << "gradmonctl: its hub is running; waiting for an answer\n";
      complained = true;
    }
  }
  return kExitDone;
}

Subcommand watch_subcommand() {
  const auto request = std::make_shared<ShowRequest>();
  return {request, "watch [RUN] [--json]", "Follow the job live, until it ends or you press Ctrl-C",
          with_job_options({{"--json", &request->json, "one JSON object a line for each state"}},
                           request->selector),
          [request](const Console& console) {
            return with_live_job(request->selector, console,
                                 [&](const LiveJob& job) { return watch_command(*request, job, console); });
          }};
}

}  // namespace gradmon
