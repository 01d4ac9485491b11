// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/history_command.h"

#include <memory>

#include "control/host/history_file.h"
#include "tools/gradmonctl/ask/find_job.h"
#include "tools/gradmonctl/ask/history_access.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/cli/subcommand.h"
#include "tools/gradmonctl/commands/history_view.h"

namespace gradmon {
namespace {

int show(const std::vector<HistoryEntry>& history, const HistoryRequest& request, const Console& console) {
  const auto screen = request.all ? std::nullopt : console.screen;
  console.out << (request.json ? history_json(history, JsonLayout::indented)
                               : fit_to_screen(screen, history_listing(history)));
  return kExitDone;
}

}  // namespace

int history_command(const HistoryRequest& request, const AskJob& ask, const HistoryFiles& files,
                    const Console& console) {
  const auto reply = ask(make_command(CommandVerb::history), kAnswerTime);
  if (reply) {
    const int code = report_failure(reply, console);
    return code == kExitDone ? show(reply->history, request, console) : code;
  }
  const auto history = files();
  console.err << "gradmonctl: " << printable(reply.error()) << "; "
              << (history ? "showing the history from the job's files" : printable(history.error())) << '\n';
  return history ? show(*history, request, console) : kExitNoAnswer;
}

namespace {

class HistorySubcommand : public SubcommandFor<HistoryRequest> {
 public:
  std::string usage() const override { return "history [RUN] [--all] [--json]"; }
  std::string summary() const override { return "Show the outcome of every change"; }
  Arguments arguments() override {
    Arguments arguments{list_all(request().all), {"--json", &request().json, "one JSON object"}};
    add_job_options(arguments, request().selector);
    return arguments;
  }
  int perform(const Console& console) override {
    const JobSelector& selector = request().selector;
    const HistoryFiles files = [&selector] { return history_from_files(output_directory(selector)); };
    return with_job_or_files(
        selector, console, [&] { return files().has_value(); },
        [&](const AskJob& ask) { return history_command(request(), ask, files, console); });
  }
};

}  // namespace

std::unique_ptr<Subcommand> history_subcommand() { return std::make_unique<HistorySubcommand>(); }

}  // namespace gradmon
