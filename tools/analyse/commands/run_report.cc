// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/commands/run_report.h"

#include <utility>

namespace gradmon {

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
