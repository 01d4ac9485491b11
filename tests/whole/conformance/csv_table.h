// SPDX-License-Identifier: Apache-2.0
// Reads the CSV files of one run directory.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace gradmon {

using CsvRow = std::map<std::string, std::string>;  // by column

// All rows of the files `{prefix}_{first step}-{last step}.csv`, in the order of the files' first steps.
std::vector<CsvRow> csv_rows(const std::filesystem::path& run_directory, const std::string& prefix);

// The only directory below `output` with CSV files in it; empty if there are none or several.
std::filesystem::path run_directory_in(const std::filesystem::path& output);

}  // namespace gradmon
