// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/text_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tools/gradmonctl/cli/display_width.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {

void TextTable::add(const std::vector<std::string>& cells) {
  std::vector<std::string> row;
  for (const std::string& cell : cells) row.push_back(printable(cell));
  row.resize(columns_.size());
  rows_.push_back(std::move(row));
}

std::vector<std::string> TextTable::lines() const {
  std::vector<std::vector<std::string>> rows(1);
  for (const Column& column : columns_) rows.front().push_back(column.title);
  rows.insert(rows.end(), rows_.begin(), rows_.end());
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& line : rows) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], display_width(line[i]));
  }
  std::vector<std::string> lines;
  for (const auto& line : rows) {
    std::string shown;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string blanks(widths[i] - display_width(line[i]), ' ');
      if (i > 0) shown += "  ";
      shown += columns_[i].align == Align::left ? line[i] + blanks : blanks + line[i];
    }
    shown.erase(shown.find_last_not_of(' ') + 1);
    lines.push_back(std::move(shown));
  }
  return lines;
}

void TextTable::fill(Listing& listing) const {
  std::vector<std::string> all = lines();
  listing.titles = {std::move(all.front())};
  listing.entries.assign(std::make_move_iterator(all.begin() + 1), std::make_move_iterator(all.end()));
}

std::string TextTable::text() const {
  std::string text;
  for (const std::string& line : lines()) text += line + '\n';
  return text;
}

}  // namespace gradmon
