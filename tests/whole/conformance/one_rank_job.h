// SPDX-License-Identifier: Apache-2.0
// A Monitor of one rank, the CSV files that it writes, and fixed values to train on.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <gradmon/monitor.h>

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace gradmon {

using CsvRow = std::map<std::string, std::string>;  // by column

// All rows of the files `{prefix}_{first step}-{last step}.csv`, in the order of the files' first steps.
std::vector<CsvRow> csv_rows(const std::filesystem::path& run_directory, const std::string& prefix);

// The only directory below `output` with CSV files in it; empty if there are none or several.
std::filesystem::path run_directory_in(const std::filesystem::path& output);

// A Monitor of one rank, its config file and its output directory.
struct OneRankJob {
  explicit OneRankJob(const std::string& keys, bool dynamic = false, MonitorOptions more = {})
      : options(std::move(more)) {
    keep_jobs_in(directory);
    write("{" + keys + "}");
    options.output_dir = directory / "out";
    options.dynamic = dynamic;
    monitor.emplace(directory / "config.json", options);
  }
  void write(const std::string& text) { write_text(directory / "config.json", text); }
  // Stops the monitor, then reads the files.
  std::vector<CsvRow> rows(const std::string& prefix) {
    monitor->stop();
    const auto run = run_directory_in(directory / "out");
    return run.empty() ? std::vector<CsvRow>{} : csv_rows(run, prefix);
  }
  std::map<std::string, std::set<std::string>> steps_by_name(const std::string& prefix) {
    std::map<std::string, std::set<std::string>> steps;
    for (const CsvRow& row : rows(prefix)) steps[row.at("name")].insert(row.at("step"));
    return steps;
  }

  const TemporaryDirectory directory;
  MonitorOptions options;
  std::optional<Monitor> monitor;
};

// Fixed values for weights and inputs, without a random generator.
inline at::Tensor sine_values(at::IntArrayRef sizes, double phase) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return at::sin(at::arange(count, at::kDouble) * 0.7 + phase).to(at::kFloat).reshape(sizes);
}

}  // namespace gradmon
