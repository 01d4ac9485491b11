// SPDX-License-Identifier: Apache-2.0
// Golden files of the names of files, their columns, and the names in their rows with
// their order. Users' scripts rely on them: a change here breaks those scripts.
#include <algorithm>
#include <fstream>
#include <sstream>

#include "control/debian_version.h"
#include "tests/support/golden.h"
#include "tests/support/split_csv.h"
#include "tests/whole/conformance/every_kind.h"
#include "tests/whole/conformance/one_rank_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;

Branch always(int) { return Branch::taken; }

bool is_value(const std::string& column) {
  static const std::set<std::string> key_columns{"vpp_stage", "name",  "step", "micro_step",
                                                 "samples",   "shape", "dtype"};
  return key_columns.count(column) == 0;
}

// The file with `#` for each number that varies. Empty cells and `nan` stay.
std::string without_values(const fs::path& csv) {
  std::ifstream file(csv);
  std::string line;
  std::getline(file, line);
  std::string text = line + "\n";
  const std::vector<std::string> header = split_csv(line);
  while (std::getline(file, line)) {
    std::vector<std::string> cells = split_csv(line);
    REQUIRE(cells.size() == header.size());
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (is_value(header[i]) && !cells[i].empty() && cells[i] != "nan") cells[i] = "#";
      text += (i == 0 ? "" : " | ") + cells[i];
    }
    text += "\n";
  }
  return text;
}

std::vector<fs::path> files_below(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST_CASE("files and columns and row names of every kind stay as they are") {
  const TemporaryDirectory directory;
  keep_jobs_in(directory);
  write_text(directory / "config.json", "{" + std::string(kEveryKind) + R"(, "step_count_per_record": 2})");
  MonitorOptions options;
  options.output_dir = directory / "out";
  options.dynamic = false;
  options.start_iteration = 1;
  options.grad_acc_steps = EveryKindTraining::kMicroBatches;
  Monitor monitor(directory / "config.json", options);
  EveryKindTraining().run(monitor, 2, always);
  monitor.stop();
  REQUIRE(monitor.status().ranks.front().error.empty());
  std::string text;
  for (const fs::path& file : files_below(run_directory_in(directory / "out"))) {
    text += "== " + file.filename().string() + "\n";
    if (file.extension() == ".csv") text += without_values(file);
  }
  CHECK(golden_difference("every_kind.txt", text) == "");
}

TEST_CASE("module structure and call stacks are complete after one step and the loop may end") {
  OneRankJob job(R"("print_struct": true, "stack_info": true)");
  EveryKindTraining training;
  training.run(*job.monitor, 5, always);
  job.monitor->stop();
  CHECK(training.steps_done() == 1);
  const fs::path out = job.directory / "out";
  const std::string structure = read_text(out / "module_struct" / "rank0" / "module_struct.json");
  CHECK(golden_difference("module_struct.json", structure) == "");
  const std::string stacks = read_text(run_directory_in(out) / "stack_info.csv");
  CHECK(golden_difference("stack_info.csv", stacks) == "");
}

}  // namespace
}  // namespace gradmon
