// SPDX-License-Identifier: Apache-2.0
// Reads the output directory of a job: the steps to collect by its verdicts, and the steps in
// its CSV files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "control/agree/journal.h"

namespace gradmon {

// The run directories, one per rank and start; sorted by rank, then by name.
std::vector<std::pair<int, std::filesystem::path>> run_directories(const std::filesystem::path& output_dir);

// The number of rows per step, in the files whose name begins with `prefix` ("grad_reduced").
using RowsByStep = std::map<std::int64_t, std::int64_t>;
RowsByStep rows_in_directory(const std::filesystem::path& run_directory, const std::string& prefix);
std::map<int, RowsByStep> rows_in_files(const std::filesystem::path& output_dir, const std::string& prefix);

// The committed plans, sorted by revision.
std::vector<HistoryEntry> commits_in_history(const std::filesystem::path& output_dir);

// The last step that the verdicts or the files prove: the ranks began it.
std::int64_t last_known_step(const std::vector<HistoryEntry>& commits, const std::map<int, RowsByStep>& rows);

// The steps up to `last` to collect by these verdicts.
std::set<std::int64_t> steps_agreed(const std::vector<HistoryEntry>& commits, std::int64_t last);

}  // namespace gradmon
