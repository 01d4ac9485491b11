// SPDX-License-Identifier: Apache-2.0
// Which columns a kind's CSV file has under a layout. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "writers/layout.h"
#include "writers/record.h"

namespace gradmon {

struct ColumnPlan {
  bool known = false;  // false: this kind has no CSV form (yet)
  bool has_micro_step = false;
  std::vector<Op> ops;
  std::string header;  // with its line end
};

ColumnPlan column_plan(Kind kind, const Layout& layout);

// A cell as Python's csv module writes it: in quotes, with quotes doubled, where
// it holds a comma, a quote or a line end; else as it is.
void append_cell(std::string& line, std::string_view text);

}  // namespace gradmon
