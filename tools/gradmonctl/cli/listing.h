// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/gradmonctl/cli/console.h"

namespace gradmon {

// The readable output of a command: a list with one line per entry, and prose before and
// after it. A value.
struct Listing {
  enum class Keep : std::uint8_t { first, last };  // the entries that a small screen shows

  std::string noun;  // for one entry: "rank"
  Keep keep = Keep::first;
  std::string all = "--all shows all";  // the hint for the omitted entries
  std::string before = {};              // whole lines
  std::vector<std::string> titles = {};
  std::vector<std::string> entries = {};
  std::string after = {};  // whole lines
};

// Prose wrapped at blanks; splits a wider word.
std::string folded_to_width(const std::string& text, std::size_t columns);

// The complete text, for a file or a pipe.
std::string full_text(const Listing& listing);
// The text for a screen: no line is wider than the screen, and lines are fewer than rows, because a prompt
// follows. Cuts wide entries with an ellipsis; wraps wide prose; one line has the number of omitted entries.
// Without a screen: the complete text.
std::string fit_to_screen(const std::optional<Screen>& screen, const Listing& listing);

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
