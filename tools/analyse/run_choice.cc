// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/run_choice.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "tools/gradmonctl/cli/listing.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {

void each_kind(const Run& run, Problems& problems, const EachKind& each) {
  for (const RankDirectory& rank : run.ranks) {
    for (const auto& [kind, files] : kind_files_in(rank.path, problems)) each(rank.rank, kind, files);
  }
}

Arguments run_arguments(RunChoice& choice) {
  return {
      {"RUN", &choice.path,
       "the job's output directory, one rank's directory in it, or a\n"
       "run-ID.json (default: MONITOR_OUTPUT_DIR, else ./monitor_output)"},
      {"--run", &choice.id,
       "the run with this id, as in the names of the directories\n(default: the newest one in RUN)", "ID"},
      {"--flight", &choice.flight,
       "read the steps that led up to alerts, which the flight recorder\nwrote (keep_last), instead of the "
       "collected steps"}};
}

namespace {

// The same run, with the flight directories of the ranks that have one. The error: no rank has one.
tl::expected<Run, std::string> flight_of(const Run& run) {
  Run flight{run.id, run.started, {}};
  for (const RankDirectory& rank : run.ranks) {
    std::error_code ignored;
    if (std::filesystem::is_directory(rank.path / "flight", ignored))
      flight.ranks.push_back({rank.rank, rank.path / "flight"});
  }
  if (flight.ranks.empty())
    return tl::unexpected(
        "no rank of " + text_of(run) +
        " has files of a flight recorder; expected a directory flight, as an alert makes it with "
        "\"keep_last\" in the config");
  return flight;
}

}  // namespace

tl::expected<Run, std::string> chosen_run(const RunChoice& choice, Problems& problems) {
  const auto path = choice.path.empty() ? default_output_dir() : without_dots(choice.path);
  auto run = find_run(path, choice.id, problems);
  return run && choice.flight ? flight_of(*run) : run;
}

std::string text_of(const Run& run) {
  std::vector<int> ranks;
  for (const RankDirectory& rank : run.ranks) ranks.push_back(rank.rank);
  std::string text = "run " + (run.id.empty() ? "without an id" : printable(run.id));
  if (!run.started.empty()) text += ", started " + printable(run.started);
  return text + ", " + rank_ranges(ranks);
}

OrderedJson to_json(const Run& run) {
  OrderedJson ranks = OrderedJson::array();
  for (const RankDirectory& rank : run.ranks)
    ranks.push_back({{"rank", rank.rank}, {"directory", rank.path.string()}});
  return {{"id", text_or_null(run.id)}, {"started", text_or_null(run.started)}, {"ranks", std::move(ranks)}};
}

std::string text_of(const Extent& extent) {
  if (extent.rows == 0) return "no rows";
  return "steps " + std::to_string(extent.first_step) + "-" + std::to_string(extent.last_step) + ", " +
         std::to_string(extent.rows) + " rows";
}

OrderedJson to_json(const Extent& extent) {
  return {{"rows", extent.rows},
          {"first_step", step_or_null(extent.first_step)},
          {"last_step", step_or_null(extent.last_step)}};
}

void report(const Problems& problems, const Console& console) {
  for (const std::string& message : problems.messages()) report_error(message, console);
}

OrderedJson to_json(const Problems& problems) {
  return {{"count", problems.count()}, {"messages", problems.messages()}};
}

int report_no_rows(const Run& run, const Console& console) {
  return report_error("there are no rows in " + text_of(run) +
                          "; expected CSV files such as grad_reduced_0-0.csv in " +
                          (run.ranks.empty() ? "it" : run.ranks.front().path.string()),
                      console);
}

void print_lines(const std::string& text, const Console& console) {
  console.out << (console.screen ? folded_to_width(text, console.screen->columns) : text);
}

Arguments report_arguments(RunReportRequest& request, Arguments between) {
  Arguments arguments = run_arguments(request.run);
  for (Argument& argument : between) arguments.push_back(std::move(argument));
  arguments.push_back({"--json", &request.json, "one JSON object"});
  return arguments;
}

int print_run_report(const RunReportRequest& request, const Console& console,
                     const std::function<RunReport(const Run& run, Problems& problems)>& read) {
  Problems problems;
  const auto run = chosen_run(request.run, problems);
  if (!run) return report_error(run.error(), console);
  const RunReport found = read(*run, problems);
  report(problems, console);
  if (found.rows == 0) return report_no_rows(*run, console);
  if (request.json) {
    console.out << json_text(found.json(), JsonLayout::indented);
  } else {
    print_lines(found.text(), console);
  }
  return kExitDone;
}

}  // namespace gradmon
