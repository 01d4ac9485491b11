// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <memory>
#include <optional>

#include "control/files/file_access.h"
#include "tools/analyse/raster.h"
#include "tools/analyse/run_choice.h"
#include "tools/analyse/run_heat_map.h"
#include "tools/analyse/svg.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

struct PlotRequest {
  RunChoice run;
  std::string output;
  HeatMapRequest map;
  bool json = false;
};

class PlotSubcommand : public SubcommandFor<PlotRequest> {
 public:
  std::string usage() const override {
    return "plot [RUN] -o FILE [--run ID] [--flight] [--metric KIND] [--op OP] [--target NAME] [--rank R] "
           "[--json]";
  }
  std::string summary() const override { return "Draw a heat map, layer or bin over step"; }
  std::string details() const override {
    return "A cell is the largest magnitude of the values in it, over ranks, micro steps and, in a long\n"
           "run, neighbouring steps and layers: no spike is lost. NaN, infinities and 0 have colours of\n"
           "their own. Steps without rows are left out.\n"
           "\n"
           "The kinds update and ratio are histograms of one parameter, from TensorBoard's files: a cell is "
           "the\n"
           "number of values in a bin, and --target names the parameter.\n"
           "\n"
           "examples:\n"
           "  gradmonctl analyse plot monitor_output -o heatmap.svg\n"
           "  gradmonctl analyse plot monitor_output -o actv.svg --metric actv --op max --target "
           "'layers.3.*'\n"
           "  gradmonctl analyse plot monitor_output -o update.svg --metric update --target fc1.weight";
  }
  Arguments arguments() override {
    Arguments arguments = run_arguments(request().run);
    Argument output{"-o,--output", &request().output,
                    "the picture, FILE.svg or FILE.png; replaced if it exists", "FILE"};
    output.required = true;
    arguments.push_back(std::move(output));
    Argument metric{
        "--metric", &request().map.kind,
        "as in the names of the files (default: grad_reduced,\nelse the first kind that is there)", "KIND"};
    metric.choices.assign(kKindNames.begin(), kKindNames.end());
    arguments.push_back(std::move(metric));
    Argument op{"--op", &request().map.field, "the statistic (default: norm, else the first that is there)",
                "OP"};
    for (Field field = 0; field < kFields; ++field) op.choices.emplace_back(name_of_field(field));
    arguments.push_back(std::move(op));
    arguments.push_back({"--target", &request().map.target,
                         "these layers alone: a name, which includes what is below it,\n"
                         "or a pattern with * and ?",
                         "NAME"});
    arguments.push_back(
        {"--rank", &request().map.rank, "this rank alone (default: the largest of all ranks)", "R"});
    arguments.push_back({"--json", &request().json, "one JSON object about the file, on stdout"});
    return arguments;
  }
  std::string complete() override {
    const auto extension = std::filesystem::path(request().output).extension();
    if (extension != ".svg" && extension != ".png")
      return "-o " + request().output + ": expected a file name that ends with .svg or .png";
    if (is_of_histograms() && !request().map.field.empty())
      return "--op " + request().map.field + ": " + request().map.kind +
             " is a histogram and has no statistics";
    return "";
  }
  int perform(const Console& console) override {
    Problems problems;
    const auto run = chosen_run(request().run, problems);
    if (!run) return report_error(run.error(), console);
    const auto map = is_of_histograms() ? histogram_heat_map_of(*run, request().map, problems)
                                        : heat_map_of(*run, request().map, problems);
    report(problems, console);
    if (!map) return report_error(map.error(), console);
    const bool is_png = std::filesystem::path(request().output).extension() == ".png";
    const std::string bytes = is_png ? png_of(raster_of(*map)) : svg_of(*map);
    if (bytes.empty()) return report_error(request().output + ": libpng cannot make it; try .svg", console);
    if (const auto written = replace_file(request().output, bytes, 0640); !written)
      return report_error(written.error(), console);
    if (request().json) {
      console.out << json_text({{"schema_version", kJsonSchemaVersion},
                                {"file", request().output},
                                {"title", map->title},
                                {"rows", map->rows.size()},
                                {"columns", map->columns()},
                                {"first_step", map->first_steps.front()},
                                {"last_step", map->last_step},
                                {"left_out", to_json(problems)}},
                               JsonLayout::indented);
    } else if (console.screen) {
      console.out << printable(request().output) << ": " << map->title << ", " << map->rows.size()
                  << " rows\n";
    }
    return kExitDone;
  }

 private:
  bool is_of_histograms() {
    const auto kind = kind_named(request().map.kind);
    return kind && is_histogram(*kind);
  }
};

}  // namespace

std::unique_ptr<Subcommand> plot_subcommand() { return std::make_unique<PlotSubcommand>(); }

}  // namespace gradmon
