// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/gradmonctl/cli/listing.h"

namespace gradmon {

// A readable table: columns as wide as their widest cell, two blanks apart,
// no blanks at the end of a line. A value.
class TextTable {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::right;
  };

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // `cells`: one for each column; made printable here.
  void add(const std::vector<std::string>& cells);
  // Stores the titles and the rows as lines in `listing`.
  void fill(Listing& listing) const;
  std::string text() const;

 private:
  // Titles first, without line feeds.
  std::vector<std::string> lines() const;

  std::vector<Column> columns_;  // Constant after construction.
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace gradmon
