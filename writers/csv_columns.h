// SPDX-License-Identifier: Apache-2.0
// Which columns a kind's CSV file has under a layout. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "writers/layout.h"
#include "writers/record.h"

namespace gradmon {

// What one cell of a row holds, and which of the record's values.
struct CsvCell {
  enum class Source : std::uint8_t { vpp_stage, name, step, micro_step, number, count, shape, dtype };
  Source source;
  std::uint8_t value = 0;  // of number and count: index into Record::values
  const char* title = "";
};

struct ColumnPlan {
  std::vector<CsvCell> cells;
  std::string header;  // with its line end
};

ColumnPlan column_plan(Kind kind, const Layout& layout);

// Whether rows of that kind tell micro steps apart.
bool has_micro_step(Kind kind, const Layout& layout);

// A record's values under the titles of their columns; those it has, of all ops
// in the order of Op.
std::vector<std::pair<const char*, double>> titled_values(const Record& record);

// A cell as Python's csv module writes it: in quotes, with quotes doubled, where
// it holds a comma, a quote or a line end; else as it is.
void append_cell(std::string& line, std::string_view text);

}  // namespace gradmon
