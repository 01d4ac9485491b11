// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <algorithm>
#include <memory>

#include "control/host/history_file.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/job.h"
#include "tools/gradmonctl/cli/listing.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

std::string step_text(std::int64_t step) { return step < 0 ? "-" : std::to_string(step); }

std::string applied_text(const std::map<int, std::int64_t>& applied) {
  if (applied.empty()) return "-";
  const std::int64_t first = applied.begin()->second;
  const bool same =
      std::all_of(applied.begin(), applied.end(), [&](const auto& one) { return one.second == first; });
  if (same) {
    return std::to_string(first) + " on " + std::to_string(applied.size()) +
           (applied.size() == 1 ? " rank" : " ranks");
  }
  std::string text;
  for (const auto& [rank, step] : applied) {
    text += (text.empty() ? "" : ", ") + std::to_string(step) + " on rank " + std::to_string(rank);
  }
  return text;
}

// False for a refused config file or `set`: its on or off is unknown.
bool knows_on_or_off(const HistoryEntry& entry) { return entry.verdict != "refused" || entry.on; }

const char* asked_text(const HistoryEntry& entry) {
  if (!knows_on_or_off(entry)) return "-";
  return entry.on ? "on" : "off";
}

OrderedJson to_json(const HistoryEntry& entry) {
  OrderedJson::object_t applied;  // A vector: operator[] would search it for each rank.
  for (const auto& [rank, step] : entry.applied) applied.push_back({std::to_string(rank), step});
  return {
      {"revision", entry.revision == Revision{} ? OrderedJson(nullptr) : OrderedJson(entry.revision.value)},
      {"cause", entry.cause},
      {"by", text_or_null(entry.by)},
      {"on", knows_on_or_off(entry) ? OrderedJson(entry.on) : OrderedJson(nullptr)},
      {"verdict", text_or_null(entry.verdict)},
      {"reason", text_or_null(entry.reason)},
      {"proposed_at", time_or_null(entry.proposed_at)},
      {"effective_step", step_or_null(entry.effective_step)},
      {"applied", OrderedJson(std::move(applied))},
      {"finished_step", step_or_null(entry.finished_step)}};
}

}  // namespace

Listing history_listing(const std::vector<HistoryEntry>& history) {
  Listing listing;
  listing.noun = "change";
  listing.keep = Listing::Keep::last;
  listing.before = history.empty() ? "no change yet\n" : "";
  if (history.empty()) return listing;
  TextTable table({"revision", "<verdict", "<asks for", "<cause", "<proposed", "effective", "<applied",
                   "finished", "<by", "<reason"});
  for (const HistoryEntry& entry : history) {
    table.add({entry.revision == Revision{} ? "-" : std::to_string(entry.revision.value),
               entry.verdict.empty() ? "open" : entry.verdict, asked_text(entry), entry.cause,
               utc_text(entry.proposed_at), step_text(entry.effective_step), applied_text(entry.applied),
               step_text(entry.finished_step), entry.by, printable_lines(entry.reason, "; ")});
  }
  listing.table = std::move(table);
  return listing;
}

std::string history_json(const std::vector<HistoryEntry>& history, JsonLayout layout) {
  OrderedJson revisions = OrderedJson::array();
  for (const HistoryEntry& entry : history) revisions.push_back(to_json(entry));
  return json_text({{"schema_version", kJsonSchemaVersion}, {"revisions", std::move(revisions)}}, layout);
}

namespace {

int show(const std::vector<HistoryEntry>& history, const ShowRequest& request, const Console& console) {
  const auto screen = request.all ? std::nullopt : console.screen;
  console.out << (request.json ? history_json(history, JsonLayout::indented)
                               : fit_to_screen(screen, history_listing(history)));
  return kExitDone;
}

}  // namespace

int history_command(const ShowRequest& request, const AskJob& ask, const HistoryFiles& files,
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

Subcommand history_subcommand() {
  const auto request = std::make_shared<ShowRequest>();
  return {request, "history [RUN] [--all] [--json]", "Show the outcome of every change",
          with_job_options({list_all(request->all), {"--json", &request->json, "one JSON object"}},
                           request->selector),
          [request](const Console& console) {
            const HistoryFiles files = [&] {
              return history_from_files(output_directory(request->selector));
            };
            return with_job_or_files(
                request->selector, console, [&] { return files().has_value(); },
                [&](const AskJob& ask) { return history_command(*request, ask, files, console); });
          }};
}

}  // namespace gradmon
