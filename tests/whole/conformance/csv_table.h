// SPDX-License-Identifier: Apache-2.0
// The CSV files of one run directory, read back by name of row.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace gradmon {

using CsvRow = std::map<std::string, std::string>;  // by column

// Cells of one line; quoted ones without their quotes.
std::vector<std::string> split_csv(const std::string& line);

// All rows of files named `{prefix}_…`, in the order of steps and rows.
std::vector<CsvRow> csv_rows(const std::filesystem::path& run_directory, const std::string& prefix);

// The only directory below `output` with CSV files in it; empty if there is not one.
std::filesystem::path run_directory_in(const std::filesystem::path& output);

}  // namespace gradmon
