// SPDX-License-Identifier: Apache-2.0
// How wide printable text (printable.h) is on a terminal: wide characters take two
// columns, combining ones none. UTF-8 whatever the locale says. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradmon {

std::size_t display_width(std::string_view text);

// A line of at most so many columns: one that is cut ends in an ellipsis.
std::string cut_to_width(std::string_view line, std::size_t columns);

}  // namespace gradmon
