// SPDX-License-Identifier: Apache-2.0
// What the commands of `gradmonctl analyse` have in common: the run they read, and what they say of it.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "tools/analyse/find/run_rows.h"
#include "tools/analyse/rows/problems.h"
#include "tools/analyse/rows/runs.h"
#include "tools/gradmonctl/parse/argument.h"
#include "tools/gradmonctl/show/console.h"
#include "tools/gradmonctl/show/json_rule.h"

namespace gradmon {

struct RunChoice {
  std::string path;     // "": MONITOR_OUTPUT_DIR, else ./monitor_output
  std::string id;       // "": the newest run
  bool flight = false;  // what its flight recorder wrote, instead of what was collected
};

// RUN, --run and --flight.
Arguments run_arguments(RunChoice& choice);

tl::expected<Run, std::string> chosen_run(const RunChoice& choice, Problems& problems);

// "run 1a2b3c4d, started Nov24_12-04-37, ranks 0-3"
std::string text_of(const Run& run);
OrderedJson json_of(const Run& run);

// "steps 0-99, 12345 rows"
std::string text_of(const Extent& extent);
OrderedJson json_of(const Extent& extent);

// For `err`, made printable.
void report(const Problems& problems, const Console& console);
OrderedJson json_of(const Problems& problems);
int report_no_rows(const Run& run, const Console& console);

// Prints text; on a screen, lines that are too wide are cut.
void print_lines(const std::string& text, const Console& console);

}  // namespace gradmon
