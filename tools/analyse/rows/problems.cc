// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/problems.h"

#include <algorithm>

namespace gradmon {

void Problems::add(const std::filesystem::path& file, std::uint64_t line, const std::string& text) {
  if (++count_ > kMessages) return;
  const std::string place = line == 0 ? "" : ":" + std::to_string(line);
  first_.push_back(file.string() + place + ": " + text);
}

void Problems::add(const Problems& others) {
  const std::size_t room = kMessages - first_.size();
  const auto end = others.first_.begin() + static_cast<std::ptrdiff_t>(std::min(room, others.first_.size()));
  first_.insert(first_.end(), others.first_.begin(), end);
  count_ += others.count_;
}

std::vector<std::string> Problems::messages() const {
  std::vector<std::string> messages = first_;
  if (count_ > first_.size())
    messages.push_back("and " + std::to_string(count_ - first_.size()) + " more rows or files are left out");
  return messages;
}

}  // namespace gradmon
