// SPDX-License-Identifier: Apache-2.0
// The width of printable text (printable.h) on a terminal: wide characters take two
// columns, combining characters none. Text is UTF-8 in every locale. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradmon {

std::size_t display_width(std::string_view text);

// Cuts a line to at most `columns` columns; a cut line ends in an ellipsis.
std::string cut_to_width(std::string_view line, std::size_t columns);

}  // namespace gradmon
