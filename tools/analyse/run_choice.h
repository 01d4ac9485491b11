// SPDX-License-Identifier: Apache-2.0
// Shared by the commands of `gradmonctl analyse`: the run they read, its description, and the printing of a
// report on it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/analyse/rows/row_file.h"
#include "tools/analyse/rows/runs.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/console.h"
#include "tools/gradmonctl/cli/json_rule.h"

namespace gradmon {

// The amount of input read. A value.
struct Extent {
  std::uint64_t rows = 0;
  std::int64_t first_step = -1;  // -1: no row
  std::int64_t last_step = -1;
  std::set<int> ranks;  // with rows

  void add(int rank, const Row& row) {
    if (rows == 0 || row.step < first_step) first_step = row.step;
    if (row.step > last_step) last_step = row.step;
    if (ranks.empty() || last_rank_ != rank) ranks.insert(last_rank_ = rank);
    ++rows;
  }

 private:
  int last_rank_ = -1;
};

// Calls `each` with the files of every rank and kind, rank by rank.
using EachKind = std::function<void(int rank, Kind kind, const std::vector<KindFile>& files)>;
void each_kind(const Run& run, Problems& problems, const EachKind& each);

struct RunChoice {
  std::string path;     // "": MONITOR_OUTPUT_DIR, else ./monitor_output
  std::string id;       // "": the newest run
  bool flight = false;  // the flight recorder's output instead of the collected one
};

// RUN, --run and --flight.
Arguments run_arguments(RunChoice& choice);

tl::expected<Run, std::string> chosen_run(const RunChoice& choice, Problems& problems);

// "run 1a2b3c4d, started Nov24_12-04-37, ranks 0-3"
std::string text_of(const Run& run);
OrderedJson to_json(const Run& run);

// "steps 0-99, 12345 rows"
std::string text_of(const Extent& extent);
OrderedJson to_json(const Extent& extent);

// For `err`, made printable.
void report(const Problems& problems, const Console& console);
OrderedJson to_json(const Problems& problems);
int report_no_rows(const Run& run, const Console& console);

// Prints whole lines; on a screen, wraps those that are too wide.
void print_lines(const std::string& text, const Console& console);

struct RunReportRequest {
  RunChoice run;
  bool json = false;
};

// The findings in a run.
struct RunReport {
  std::uint64_t rows = 0;  // read; 0: nothing to print
  std::function<OrderedJson()> json;
  std::function<std::string()> text;
};

// RUN, --run, and at the end --json.
Arguments report_arguments(RunReportRequest& request, Arguments between = {});

// Chooses the run, has `read` read it, and prints its report; returns the exit code. `problems`: unreadable
// input, for `read` to add to; printed before the report.
int print_run_report(const RunReportRequest& request, const Console& console,
                     const std::function<RunReport(const Run& run, Problems& problems)>& read);

}  // namespace gradmon
