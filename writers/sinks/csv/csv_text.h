// SPDX-License-Identifier: Apache-2.0
// The header line and the text cells of CSV files. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "writers/sinks/columns.h"

namespace gradmon {

// The titles as one line, with the line end.
std::string csv_header(const std::vector<RowColumn>& columns);

// Appends a cell as Python's csv module writes it: a text with a comma, a quote or a line end is quoted, with
// its quotes doubled; any other text is unchanged.
void append_cell(std::string& line, std::string_view text);

}  // namespace gradmon
