// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/source_lines.h"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace gradmon {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  return lines;
}

}  // namespace

std::string SourceLines::line(const std::string& path, std::int64_t number) {
  auto file = files_.find(path);
  if (file == files_.end()) file = files_.emplace(path, lines_of(path)).first;
  if (number < 1 || static_cast<std::size_t>(number) > file->second.size()) return {};
  const std::string& line = file->second[static_cast<std::size_t>(number - 1)];
  const std::size_t begin = line.find_first_not_of(" \t\r\f");
  return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(" \t\r\f") + 1 - begin);
}

}  // namespace gradmon
