// SPDX-License-Identifier: Apache-2.0
// What a CSV file's lines are made of. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "writers/sinks/columns.h"

namespace gradmon {

// The titles, with the line end.
std::string csv_header(const std::vector<RowColumn>& columns);

// A cell as Python's csv module writes it: in quotes, with quotes doubled, where
// it holds a comma, a quote or a line end; else as it is.
void append_cell(std::string& line, std::string_view text);

}  // namespace gradmon
