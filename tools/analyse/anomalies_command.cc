// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <filesystem>
#include <memory>
#include <system_error>

#include "control/files/file_access.h"
#include "tools/analyse/anomaly_dumps.h"
#include "tools/analyse/run_choice.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

struct AnomaliesRequest {
  std::string data_path;
  std::string out_path;
  std::int64_t top = 8;
  std::string steps;
  bool json = false;
};

// Reads "[1, 2]", "1,2" or "". Returns false for any other text.
bool read_steps(std::string_view text, std::vector<std::int64_t>& steps) {
  std::string numbers;
  for (const char c : text) {
    if (c != ' ') numbers += c;
  }
  const bool opened = !numbers.empty() && numbers.front() == '[';
  const bool closed = !numbers.empty() && numbers.back() == ']';
  if (opened != closed) return false;
  if (opened) numbers = numbers.substr(1, numbers.size() - 2);
  if (numbers.size() > 1 && numbers.back() == ',') numbers.pop_back();  // as Python allows
  const char* at = numbers.data();
  const char* const end = at + numbers.size();
  while (at != end) {
    std::int64_t step = 0;
    const auto read = std::from_chars(at, end, step);
    if (read.ec != std::errc() || (read.ptr != end && (*read.ptr != ',' || read.ptr + 1 == end)))
      return false;
    steps.push_back(step);
    at = read.ptr == end ? end : read.ptr + 1;
  }
  return true;
}

OrderedJson anomalies_json(const AnomalyDumps& dumps, const std::string& file) {
  return {{"schema_version", kJsonSchemaVersion},
          {"file", file},
          {"dumps", dumps.dumps},
          {"anomalies", dumps.anomalies},
          {"first", OrderedJson::parse(analyse_json(dumps.first))},
          {"left_out", dumps.left_out}};
}

class AnomaliesSubcommand : public SubcommandFor<AnomaliesRequest> {
 public:
  std::string usage() const override { return "anomalies [RUN] [-o DIR] [-k N] [-s STEPS] [--json]"; }
  std::string summary() const override {
    return "Sort the alerts of all ranks, and write the first ones to anomaly_analyse.json";
  }
  std::string details() const override {
    return "Takes the dumps rank{R}/anomaly.json of gradmon or of msprobe, and writes what msprobe's\n"
           "anomaly_processor writes. The first anomaly is the one to look at.\n"
           "\n"
           "examples:\n"
           "  gradmonctl analyse anomalies monitor_output\n"
           "  gradmonctl analyse anomalies monitor_output -k 20 -s '[100, 101]'";
  }
  Arguments arguments() override {
    Argument top{"-k,--topk", &request().top, "how many to keep (default: 8)", "N"};
    top.least = 1;
    return {{"RUN,-d,--data-path,--data_path", &request().data_path,
             "the job's output directory, or that of the dumps in it\n"
             "(default: MONITOR_OUTPUT_DIR, else ./monitor_output);\n"
             "also, as in msprobe: -d RUN",
             "RUN"},
            {"-o,--out-path,--out_path", &request().out_path,
             "the directory of anomaly_analyse.json\n(default: the directory of the dumps)", "DIR"},
            top,
            {"-s,--step-list,--step_list,--step", &request().steps, "these steps alone: [1,2] (default: all)",
             "STEPS"},
            {"--json", &request().json, "one JSON object on stdout, beside the file"}};
  }
  std::string complete() override {
    if (read_steps(request().steps, steps_)) return "";
    return "--step-list \"" + request().steps + "\": expected a list of steps, such as [1,2]";
  }
  int perform(const Console& console) override {
    std::filesystem::path place =
        request().data_path.empty() ? default_output_dir() : std::filesystem::path(request().data_path);
    std::error_code ignored;
    if (std::filesystem::is_directory(place / "anomaly_detected", ignored)) place /= "anomaly_detected";
    const auto dumps = read_anomaly_dumps(place, {static_cast<std::size_t>(request().top), steps_});
    if (!dumps) return report_error(dumps.error(), console);
    for (const std::string& message : dumps->left_out) report_error(message, console);
    const std::filesystem::path directory =
        request().out_path.empty() ? place : std::filesystem::path(request().out_path);
    const std::filesystem::path file = directory / "anomaly_analyse.json";
    if (const auto written = replace_file(file, analyse_json(dumps->first), 0640); !written)
      return report_error(written.error(), console);
    if (request().json) {
      console.out << json_text(anomalies_json(*dumps, file.string()), JsonLayout::indented);
      return kExitDone;
    }
    std::string text = "the first " + std::to_string(dumps->first.size()) + " of " +
                       std::to_string(dumps->anomalies) + " anomalies, in " + printable(file.string()) +
                       ":\n";
    for (std::size_t i = 0; i < dumps->first.size(); ++i)
      text += std::to_string(i) + ": " + printable(dumps->first[i].message) + "\n";
    print_lines(text, console);
    return kExitDone;
  }

 private:
  std::vector<std::int64_t> steps_;
};

}  // namespace

std::unique_ptr<Subcommand> anomalies_subcommand() { return std::make_unique<AnomaliesSubcommand>(); }

}  // namespace gradmon
