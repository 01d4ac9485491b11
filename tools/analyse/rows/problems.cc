// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/problems.h"

namespace gradmon {

void Problems::add(const std::filesystem::path& file, std::uint64_t line, const std::string& text) {
  if (++count_ > kMessages) return;
  const std::string place = line == 0 ? "" : ":" + std::to_string(line);
  first_.push_back(file.string() + place + ": " + text);
}

std::vector<std::string> Problems::messages() const {
  std::vector<std::string> messages = first_;
  if (count_ > first_.size())
    messages.push_back("and " + std::to_string(count_ - first_.size()) + " more rows or files are left out");
  return messages;
}

}  // namespace gradmon
