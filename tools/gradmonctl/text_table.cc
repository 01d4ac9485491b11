// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/text_table.h"

#include <algorithm>

#include "tools/gradmonctl/printable.h"

namespace gradmon {

void TextTable::add(const std::vector<std::string>& cells) {
  std::vector<std::string> row;
  for (const std::string& cell : cells) row.push_back(printable(cell));
  row.resize(columns_.size());
  rows_.push_back(std::move(row));
}

std::string TextTable::text() const {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : columns_) lines.front().push_back(column.title);
  lines.insert(lines.end(), rows_.begin(), rows_.end());
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], character_count(line[i]));
  }
  std::string text;
  for (const auto& line : lines) {
    std::string shown;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string blanks(widths[i] - character_count(line[i]), ' ');
      if (i > 0) shown += "  ";
      shown += columns_[i].align == Align::left ? line[i] + blanks : blanks + line[i];
    }
    shown.erase(shown.find_last_not_of(' ') + 1);
    text += shown + '\n';
  }
  return text;
}

}  // namespace gradmon
