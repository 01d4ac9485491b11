// SPDX-License-Identifier: Apache-2.0
// What the commands that report on one run do alike: read it, say what was left out, and print.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tools/analyse/commands/run_choice.h"

namespace gradmon {

struct RunReportRequest {
  RunChoice run;
  bool json = false;
};

// What was found in a run.
struct RunReport {
  std::uint64_t rows = 0;  // read; 0: there is nothing to print
  std::function<OrderedJson()> json;
  std::function<std::string()> text;
};

// RUN, --run, and at the end --json.
Arguments report_arguments(RunReportRequest& request, Arguments between = {});

// Chooses the run, has `read` read it, and prints its report; returns the exit code. `problems`: what could
// not be read, for `read` to add to; they are reported before the report is printed.
int print_run_report(const RunReportRequest& request, const Console& console,
                     const std::function<RunReport(const Run& run, Problems& problems)>& read);

}  // namespace gradmon
