// SPDX-License-Identifier: Apache-2.0
// What a job has left in its output directory, read from outside: which steps
// its verdicts meant to be collected, and which its CSV files hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "control/agree/journal.h"

namespace gradmon {

// The directories of ranks, one per rank and start; by rank, then by name.
std::vector<std::pair<int, std::filesystem::path>> run_directories(const std::filesystem::path& output_dir);

// Rows by step, of one kind of file ("grad_reduced"), by rank.
using RowsByStep = std::map<std::int64_t, std::int64_t>;
RowsByStep rows_in_directory(const std::filesystem::path& run_directory, const std::string& prefix);
std::map<int, RowsByStep> rows_in_files(const std::filesystem::path& output_dir, const std::string& prefix);

// The plans that were committed, by effective step.
std::vector<HistoryEntry> commits_in_history(const std::filesystem::path& output_dir);

// The steps up to `last` that these verdicts mean to be collected.
std::set<std::int64_t> steps_agreed(const std::vector<HistoryEntry>& commits, std::int64_t last);

}  // namespace gradmon
