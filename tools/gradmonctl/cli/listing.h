// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/gradmonctl/cli/console.h"

namespace gradmon {

// A readable table: columns as wide as their widest cell, two blanks apart,
// no blanks at the end of a line. A value.
class TextTable {
 public:
  using Lines = std::vector<std::string>;  // without line feeds

  // The titles of the columns. "<" in front of a title, and not shown, aligns its column to the left.
  explicit TextTable(const std::vector<std::string>& titles);

  // `cells`: one for each column; made printable here.
  void add(const std::vector<std::string>& cells);
  std::string text() const;
  // The titles and each row, as lines of at most `columns`. If a row is wider, the columns that do not fit go
  // to indented lines below it, and so does the end of a wide text.
  std::vector<Lines> wrapped(std::size_t columns) const;

 private:
  std::vector<bool> left_;                      // of each column. Constant after construction.
  std::vector<std::vector<std::string>> rows_;  // the titles first
};

// The readable output of a command: a table, or a list with one line per entry, and prose before and after
// it. A value.
struct Listing {
  enum class Keep : std::uint8_t { first, last };  // the entries that a small screen shows

  std::string noun;  // for one entry: "rank"
  Keep keep = Keep::first;
  std::string all = "--all shows all";  // the hint for the omitted entries
  std::string before = {};              // whole lines
  std::optional<TextTable> table = {};
  std::vector<std::string> entries = {};  // without a table
  std::string after = {};                 // whole lines
};

// The complete text, for a file or a pipe.
std::string full_text(const Listing& listing);
// The text for a screen: no line is wider than the screen, and lines are fewer than rows, because a prompt
// follows. Wraps wide entries and prose; one line has the number of omitted entries. Without a screen: the
// complete text.
std::string fit_to_screen(const std::optional<Screen>& screen, const Listing& listing);

}  // namespace gradmon
