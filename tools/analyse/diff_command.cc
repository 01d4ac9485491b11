// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>

#include "control/text/alert_words.h"
#include "tools/analyse/divergence.h"
#include "tools/analyse/run_choice.h"
#include "tools/analyse/value_text.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/json_rule.h"
#include "tools/gradmonctl/cli/listing.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

struct DiffReport {
  const Run& a;
  const Run& b;
  Tolerance tolerance;
  const Divergence& found;
};

enum class ListLength : std::uint8_t { a_few, all };

constexpr std::size_t kAFew = 10;
constexpr int kDifferenceDigits = 3;

constexpr auto kAtLeft = TextTable::Align::left;
constexpr auto kAtRight = TextTable::Align::right;

std::string place_text(const Parting& parting) {
  std::string text = layer_text(0, parting.layer) + " (" + name_of(parting.kind) + "), step " +
                     std::to_string(parting.order.step);
  if (parting.micro_step >= 0) text += ", micro step " + std::to_string(parting.micro_step);
  return printable(text) + ", " + text_of(parting.order.phase) + ", rank " + std::to_string(parting.rank);
}

std::string values_text(const Parting& parting) {
  return std::string(name_of_field(parting.field)) + " " + value_text(parting.a) + " in A, " +
         value_text(parting.b) + " in B, relative difference " +
         number_text(parting.difference, kDifferenceDigits);
}

std::string more_text(std::size_t all, std::size_t shown, const char* noun) {
  return all > shown ? "… and " + std::to_string(all - shown) + " more " + noun + " (--all shows all)\n" : "";
}

// The steps from the first difference on.
std::string steps_text(const Divergence& found, std::size_t most) {
  TextTable table({{"step", kAtRight},
                   {"rows", kAtRight},
                   {"apart", kAtRight},
                   {"largest difference", kAtRight},
                   {"statistic", kAtLeft},
                   {"rank", kAtRight},
                   {"kind", kAtLeft},
                   {"layer", kAtLeft}});
  const auto begin = found.steps.lower_bound(found.first->order.step);
  const auto count = static_cast<std::size_t>(std::distance(begin, found.steps.end()));
  std::size_t place = 0;
  for (auto step = begin; step != found.steps.end(); ++step, ++place) {
    if (place + 1 >= most && place + 1 < count) continue;  // always prints the last one
    const Divergence::StepCount& one = step->second;
    std::vector<std::string> cells{std::to_string(step->first), std::to_string(one.compared),
                                   std::to_string(one.parted)};
    if (const Parting* const worst = one.worst.get()) {
      for (std::string cell :
           {number_text(worst->difference, kDifferenceDigits), std::string(name_of_field(worst->field)),
            std::to_string(worst->rank), std::string(name_of(worst->kind)), layer_text(0, worst->layer)})
        cells.push_back(std::move(cell));
    }
    table.add(cells);
  }
  return "\nhow they part from there\n" + table.text() +
         more_text(count, std::min(most, count), "steps in between");
}

std::string ranks_text(const Divergence& found, std::size_t most) {
  if (found.by_rank.size() < 2) return "";
  std::string text = "\nwhere each rank first parts\n";
  std::size_t shown = 0;
  for (const auto& [rank, parting] : found.by_rank) {
    if (shown++ == most) break;
    text += "  " + place_text(parting) + ": " + values_text(parting) + "\n";
  }
  return text + more_text(found.by_rank.size(), std::min(most, found.by_rank.size()), "ranks");
}

std::string only_text(const char* run, const Divergence::Only& only) {
  if (only.rows == 0) return "";
  return "rows only in " + std::string(run) + ": " + std::to_string(only.rows) + ", the first in step " +
         std::to_string(only.step) + ": " + printable(only.what) + "\n";
}

OrderedJson parting_json(const Parting& parting) {
  return {{"step", parting.order.step},
          {"micro_step", step_or_null(parting.micro_step)},
          {"phase", text_of(parting.order.phase)},
          {"rank", parting.rank},
          {"kind", name_of(parting.kind)},
          {"layer", parting.layer},
          {"statistic", name_of_field(parting.field)},
          {"a", value_json(parting.a)},
          {"b", value_json(parting.b)},
          {"relative_difference", value_json(parting.difference)},
          {"file", parting.file.string()},
          {"line", parting.line}};
}

OrderedJson only_json(const Divergence::Only& only) {
  return {{"rows", only.rows}, {"first_step", step_or_null(only.step)}, {"first", text_or_null(only.what)}};
}

std::string diff_text(const DiffReport& report, ListLength length) {
  const Divergence& found = report.found;
  const std::size_t most = length == ListLength::all ? static_cast<std::size_t>(-1) : kAFew;
  std::string text = "A: " + text_of(report.a) + "\nB: " + text_of(report.b) + "\n" +
                     std::to_string(found.compared) + " rows compared, tolerance " +
                     value_text(report.tolerance.relative) + " relative and " +
                     value_text(report.tolerance.absolute) + " absolute\n";
  text += only_text("A", found.only_a) + only_text("B", found.only_b);
  if (found.without_common > 0)
    text += "rows with no statistic in common: " + std::to_string(found.without_common) + "\n";
  if (!found.first) return text + (found.compared > 0 ? "no value parts\n" : "");
  text += "\nthe runs first part in\n  " + place_text(*found.first) + "\n  " + values_text(*found.first) +
          "\n  " + printable(found.first->file.string()) + ":" + std::to_string(found.first->line) + "\n";
  return text + steps_text(found, most) + ranks_text(found, most);
}

OrderedJson diff_json(const DiffReport& report, const Problems& problems) {
  const Divergence& found = report.found;
  OrderedJson by_rank = OrderedJson::array();
  for (const auto& [rank, parting] : found.by_rank) by_rank.push_back(parting_json(parting));
  OrderedJson steps = OrderedJson::array();
  for (const auto& [step, count] : found.steps) {
    if (found.first && step < found.first->order.step) continue;
    if (!found.first) break;
    steps.push_back({{"step", step},
                     {"rows", count.compared},
                     {"apart", count.parted},
                     {"worst", count.worst ? parting_json(*count.worst) : OrderedJson(nullptr)}});
  }
  return {{"schema_version", kJsonSchemaVersion},
          {"a", to_json(report.a)},
          {"b", to_json(report.b)},
          {"tolerance", {{"relative", report.tolerance.relative}, {"absolute", report.tolerance.absolute}}},
          {"compared_rows", found.compared},
          {"rows_without_common_statistic", found.without_common},
          {"only_in_a", only_json(found.only_a)},
          {"only_in_b", only_json(found.only_b)},
          {"first", found.first ? parting_json(*found.first) : OrderedJson(nullptr)},
          {"by_rank", std::move(by_rank)},
          {"steps", std::move(steps)},
          {"left_out", to_json(problems)}};
}

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
    return "diff RUN_A RUN_B [--run-a ID] [--run-b ID] [--tolerance X] [--absolute X] [--all] [--json]";
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
    Argument a{"RUN_A", &request().a.path, "the job's output directory, as RUN of `analyse first`"};
    Argument b{"RUN_B", &request().b.path, "the one to compare with it"};
    a.required = b.required = true;
    return {a,
            b,
            {"--run-a", &request().a.id, "the run with this id in RUN_A (default: the newest one)", "ID"},
            {"--run-b", &request().b.id, "the run with this id in RUN_B (default: the newest one)", "ID"},
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
