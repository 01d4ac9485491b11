// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/history_command.h"

#include <memory>

#include "control/host/history_file.h"
#include "tools/gradmonctl/ask/connect.h"
#include "tools/gradmonctl/ask/history_access.h"
#include "tools/gradmonctl/commands/history_view.h"
#include "tools/gradmonctl/parse/subcommand.h"
#include "tools/gradmonctl/show/printable.h"

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

namespace {

// Whether the files of the output directory may replace the answer of a job that was not found.
// If the user named a job, the files may be those of another job and would mislead.
bool tell_files(const JobPlace& place, const NoJob& problem) {
  if (problem.code != kExitNoAnswer && problem.code != kExitNotAllowed) return false;
  return chosen_name(place).empty() || !place.output_dir.empty();
}

class HistorySubcommand : public SubcommandFor<HistoryRequest> {
 public:
  std::string usage() const override { return "history [--all] [--json]"; }
  std::string summary() const override { return "Show what became of every change"; }
  Arguments arguments() override {
    Arguments arguments{list_all(request().all), {"--json", &request().json, "one JSON object"}};
    add_place(arguments, request().place);
    return arguments;
  }
  int perform(const Console& console) override {
    const JobPlace& place = request().place;
    const auto ask = connect(place);
    if (!ask && !tell_files(place, ask.error())) return give_up(ask.error(), console);
    const std::string denial = ask ? "" : history_denial(output_directory(place));
    if (!denial.empty()) return give_up({kExitNotAllowed, printable(denial)}, console);
    const HistoryFiles files = [&place] { return history_from_files(output_directory(place)); };
    return history_command(request(), ask ? *ask : ask_nobody(ask.error()), files, console);
  }
};

}  // namespace

std::unique_ptr<Subcommand> history_subcommand() { return std::make_unique<HistorySubcommand>(); }

}  // namespace gradmon
