// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "tools/analyse/run_choice.h"
#include "tools/analyse/value_text.h"
#include "tools/gradmonctl/cli/command_line.h"

namespace gradmon {
namespace {

class FirstSubcommand : public SubcommandFor<RunReportRequest> {
 public:
  std::string usage() const override { return "first [RUN] [--run ID] [--flight] [--json]"; }
  std::string summary() const override {
    return "Find the job's first value that is not finite, and what was around it";
  }
  std::string details() const override {
    return "The first one by step and micro step; in these by the order of computation: what the step\n"
           "begins with (weights, moments), forward, backward, reduced gradients, updated weights,\n"
           "scalars; then by the order of the rows, and by rank. A tensor that holds an infinity in every\n"
           "row from the first collected step on, as an attention mask does, is left out; one line names "
           "it.\n"
           "\n"
           "examples:\n"
           "  gradmonctl analyse first monitor_output\n"
           "  gradmonctl analyse first --json monitor_output | jq .first.step";
  }
  Arguments arguments() override { return report_arguments(request()); }
  int perform(const Console& console) override {
    return print_run_report(request(), console, [](const Run& run, Problems& problems) {
      FirstReport found;
      found.first = find_first_not_finite(run, problems);
      Problems reported_already;
      if (found.first.first) found.around = context_of(run, found.first, reported_already);
      RunReport report;
      report.rows = found.first.extent.rows;
      report.json = [&run, &problems, found] { return first_json(run, found, problems); };
      report.text = [&run, found] { return first_text(run, found); };
      return report;
    });
  }
};

}  // namespace

std::unique_ptr<Subcommand> first_subcommand() { return std::make_unique<FirstSubcommand>(); }

}  // namespace gradmon
