// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/agree/journal.h"

namespace gradmon {

// Makes untrusted text (host names, paths, errors) safe for a terminal: control
// characters, line separators, bidirectional controls, invisible spaces and bytes that are not UTF-8 become
// "\n", "\t", "\r" or "\xNN" for each byte. Other UTF-8 stays.
std::string printable(std::string_view text);

// The lines of a text without empty lines, each made printable, joined by `between`.
std::string printable_lines(std::string_view text, std::string_view between);

// The width of printable text on a terminal: wide characters take two
// columns, combining characters none. Text is UTF-8 in every locale. Any thread.

std::size_t display_width(std::string_view text);

// Cuts a line to at most `columns` columns; a cut line ends in an ellipsis.
std::string cut_to_width(std::string_view line, std::size_t columns);

// Ascending rank numbers as readable text: "rank 3" or "ranks 0-3, 7".
std::string rank_ranges(const std::vector<int>& ranks);

// "RANKS: TEXT" for each distinct text, in the order of the first rank that has it.
std::vector<std::string> grouped_by_text(const std::vector<std::pair<int, std::string>>& texts);

// As "2026-07-06 12:34:56 UTC"; "" for 0.
std::string utc_text(WallTime time);
// A span of milliseconds, as "3 ms", "1.5 s", "90 s", "12 min" or "5 h".
std::string span_text(std::int64_t milliseconds);

}  // namespace gradmon
