// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "tools/analyse/commands/first_view.h"
#include "tools/analyse/commands/run_choice.h"
#include "tools/gradmonctl/parse/subcommand.h"

namespace gradmon {
namespace {

struct FirstRequest {
  RunChoice run;
  bool json = false;
};

class FirstSubcommand : public SubcommandFor<FirstRequest> {
 public:
  std::string usage() const override { return "first [RUN] [--run ID] [--json]"; }
  std::string summary() const override {
    return "Find the job's first value that is not finite, and what was around it";
  }
  std::string details() const override {
    return "The first one by step and micro step; in these by the order of computation: what the step\n"
           "begins with (weights, moments), forward, backward, reduced gradients, updated weights,\n"
           "scalars; then by the order of the rows, and by rank.\n"
           "\n"
           "examples:\n"
           "  gradmonctl analyse first monitor_output\n"
           "  gradmonctl analyse first --json monitor_output | jq .first.step";
  }
  Arguments arguments() override {
    Arguments arguments = run_arguments(request().run);
    arguments.push_back({"--json", &request().json, "one JSON object"});
    return arguments;
  }
  int perform(const Console& console) override {
    Problems problems;
    const auto run = chosen_run(request().run, problems);
    if (!run) return report_error(run.error(), console);
    FirstReport found;
    found.first = find_first_not_finite(*run, problems);
    report(problems, console);
    Problems reported_already;
    if (found.first.first) found.around = context_of(*run, *found.first.first, reported_already);
    if (found.first.extent.rows == 0) return report_no_rows(*run, console);
    if (request().json) {
      console.out << json_text(first_json(*run, found, problems), JsonLayout::indented);
    } else {
      print_lines(first_text(*run, found), console);
    }
    return kExitDone;
  }
};

}  // namespace

std::unique_ptr<Subcommand> first_subcommand() { return std::make_unique<FirstSubcommand>(); }

}  // namespace gradmon
