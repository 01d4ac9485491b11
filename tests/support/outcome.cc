// SPDX-License-Identifier: Apache-2.0
#include "tests/support/outcome.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "control/host/history_file.h"
#include "control/text/output_names.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

void count_rows(const fs::path& file, RowsByStep& rows) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);  // vpp_stage,name,step,…
  while (std::getline(in, line)) {
    std::istringstream cells(line);
    std::string step;
    for (int i = 0; i < 3; ++i) std::getline(cells, step, ',');
    rows[std::atoll(step.c_str())] += 1;
  }
}

}  // namespace

std::vector<std::pair<int, fs::path>> run_directories(const fs::path& output_dir) {
  std::vector<std::pair<int, fs::path>> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(output_dir, none)) {
    const auto name = parse_rank_directory(entry.path().filename().string());
    if (name && entry.is_directory()) found.emplace_back(name->rank, entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

RowsByStep rows_in_directory(const fs::path& run_directory, const std::string& prefix) {
  RowsByStep rows;
  for (const fs::directory_entry& file : fs::directory_iterator(run_directory)) {
    if (file.path().filename().string().rfind(prefix + "_", 0) == 0) count_rows(file.path(), rows);
  }
  return rows;
}

std::map<int, RowsByStep> rows_in_files(const fs::path& output_dir, const std::string& prefix) {
  std::map<int, RowsByStep> rows;
  for (const auto& [rank, directory] : run_directories(output_dir)) {
    RowsByStep& own = rows[rank];
    for (const auto& [step, count] : rows_in_directory(directory, prefix)) own[step] += count;
  }
  return rows;
}

std::vector<HistoryEntry> commits_in_history(const fs::path& output_dir) {
  std::vector<HistoryEntry> commits = history_from_files(output_dir).value_or(std::vector<HistoryEntry>{});
  commits.erase(std::remove_if(commits.begin(), commits.end(),
                               [](const HistoryEntry& entry) { return entry.verdict != "commit"; }),
                commits.end());
  std::sort(commits.begin(), commits.end(),
            [](const HistoryEntry& a, const HistoryEntry& b) { return a.revision < b.revision; });
  return commits;
}

std::int64_t last_known_step(const std::vector<HistoryEntry>& commits,
                             const std::map<int, RowsByStep>& rows) {
  std::int64_t last = 0;
  for (const HistoryEntry& commit : commits) {
    last = std::max({last, commit.effective_step, commit.finished_step});
  }
  for (const auto& [rank, own] : rows) last = own.empty() ? last : std::max(last, own.rbegin()->first);
  return last;
}

std::set<std::int64_t> steps_agreed(const std::vector<HistoryEntry>& commits, std::int64_t last) {
  std::set<std::int64_t> steps;
  for (std::size_t i = 0; i < commits.size(); ++i) {
    const std::int64_t end = i + 1 < commits.size() ? commits[i + 1].effective_step : last + 1;
    for (std::int64_t t = commits[i].effective_step; t < end; ++t) {
      if (commits[i].steps.collects(Step{t})) steps.insert(t);
    }
  }
  return steps;
}

}  // namespace gradmon
