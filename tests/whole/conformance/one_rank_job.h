// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gradmon/monitor.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/whole/conformance/csv_table.h"

namespace gradmon {

// A Monitor of one rank, its config file and its output directory.
struct OneRankJob {
  explicit OneRankJob(const std::string& keys, bool dynamic = false) {
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

}  // namespace gradmon
