// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <memory>

#include "tools/analyse/commands/diff_view.h"
#include "tools/analyse/commands/run_choice.h"
#include "tools/gradmonctl/parse/subcommand.h"

namespace gradmon {
namespace {

struct DiffRequest {
  RunChoice a;
  RunChoice b;
  std::string relative = "1e-5";
  std::string absolute = "1e-6";
  bool all = false;
  bool json = false;
};

bool read_tolerance(const std::string& text, double& value) {
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end && std::isfinite(value) && value >= 0;
}

class DiffSubcommand : public SubcommandFor<DiffRequest> {
 public:
  std::string usage() const override {
    return "diff A B [--run-a ID] [--run-b ID] [--tolerance X] [--absolute X] [--all] [--json]";
  }
  std::string summary() const override {
    return "Find where two runs first part, and how they part from there";
  }
  std::string details() const override {
    return "Rows are compared that have the same rank, kind, layer, step and micro step in both runs,\n"
           "but for iteration-time, throughput and other scalars of the clock.\n"
           "Values part if they differ by more than both tolerances; NaN equals NaN. The defaults leave\n"
           "out what rounding to 6 decimals makes; --tolerance 0 --absolute 0 compares exactly.\n"
           "Ends with 0 if no value parts, with 1 if one does.\n"
           "\n"
           "examples:\n"
           "  gradmonctl analyse diff runs/before runs/after\n"
           "  gradmonctl analyse diff monitor_output monitor_output --run-a 1a2b3c4d --tolerance 1e-3";
  }
  Arguments arguments() override {
    Argument a{"A", &request().a.path, "the output directory of a run, as RUN of `analyse first`"};
    Argument b{"B", &request().b.path, "the one to compare with it"};
    a.required = b.required = true;
    return {a,
            b,
            {"--run-a", &request().a.id, "the run with this id in A (default: the newest one)", "ID"},
            {"--run-b", &request().b.id, "the run with this id in B (default: the newest one)", "ID"},
            {"--tolerance", &request().relative, "relative to the larger of two values (default: 1e-5)", "X"},
            {"--absolute", &request().absolute, "in the unit of the values (default: 1e-6)", "X"},
            {"--all", &request().all, "list every step and rank"},
            {"--json", &request().json, "one JSON object"}};
  }
  std::string complete() override {
    const char* const expected = ": expected a number from 0 on, such as 1e-5";
    if (!read_tolerance(request().relative, tolerance_.relative))
      return "--tolerance \"" + request().relative + "\"" + expected;
    if (!read_tolerance(request().absolute, tolerance_.absolute))
      return "--absolute \"" + request().absolute + "\"" + expected;
    return "";
  }
  int perform(const Console& console) override {
    Problems problems;
    const auto a = chosen_run(request().a, problems);
    const auto b = chosen_run(request().b, problems);
    if (!a || !b) return report_error((a ? b : a).error(), console);
    const Divergence found = find_divergence(*a, *b, tolerance_, problems);
    report(problems, console);
    const DiffReport made{*a, *b, tolerance_, found};
    if (request().json) {
      console.out << json_text(diff_json(made, problems), JsonLayout::indented);
    } else {
      print_lines(diff_text(made, request().all ? ListLength::all : ListLength::a_few), console);
    }
    if (found.compared == 0)
      return report_error(found.without_common > 0
                              ? "no row has a statistic that is in both runs"
                              : "no row is in both runs: ranks, kinds, layers and steps were compared",
                          console);
    return found.first ? kExitFailed : kExitDone;
  }

 private:
  Tolerance tolerance_;
};

}  // namespace

std::unique_ptr<Subcommand> diff_subcommand() { return std::make_unique<DiffSubcommand>(); }

}  // namespace gradmon
