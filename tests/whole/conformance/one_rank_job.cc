// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/conformance/one_rank_job.h"

#include <fstream>
#include <set>
#include <sstream>

#include "tests/support/split_csv.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

// The first step of `{prefix}_{a}-{b}.csv`; −1 for any other file.
long first_step(const fs::path& file, const std::string& prefix) {
  const std::string name = file.filename().string();
  if (file.extension() != ".csv" || name.rfind(prefix + "_", 0) != 0) return -1;
  const std::string rest = name.substr(prefix.size() + 1);
  return rest.empty() || rest[0] < '0' || rest[0] > '9' ? -1 : std::stol(rest);
}

}  // namespace

std::vector<CsvRow> csv_rows(const fs::path& run_directory, const std::string& prefix) {
  std::map<long, fs::path> files;
  for (const auto& entry : fs::directory_iterator(run_directory)) {
    if (const long step = first_step(entry.path(), prefix); step >= 0) files.emplace(step, entry.path());
  }
  std::vector<CsvRow> rows;
  for (const auto& [step, path] : files) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    const std::vector<std::string> header = split_csv(line);
    while (std::getline(file, line)) {
      const std::vector<std::string> cells = split_csv(line);
      CsvRow row;
      for (std::size_t i = 0; i < header.size() && i < cells.size(); ++i) row[header[i]] = cells[i];
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

fs::path run_directory_in(const fs::path& output) {
  std::set<fs::path> found;
  if (!fs::exists(output)) return {};
  for (const auto& entry : fs::recursive_directory_iterator(output)) {
    if (entry.path().extension() == ".csv") found.insert(entry.path().parent_path());
  }
  return found.size() == 1 ? *found.begin() : fs::path();
}

}  // namespace gradmon
