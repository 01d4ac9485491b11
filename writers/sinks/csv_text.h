// SPDX-License-Identifier: Apache-2.0
// The text of CSV files: header lines, text cells, and numbers as Python prints round(x, ndigits). Allocates
// only to grow `line`.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "writers/sinks/columns.h"

namespace gradmon {

// The bytes that write_number() and write_count() need at most: sign, 309 digits, point, decimals.
constexpr std::size_t kNumberRoom = 640;

// Rounds to ndigits decimals (half to even on the exact binary value) and appends the shortest text
// that reads back the same, as Python's repr: "0.0", "1e-05", "1e+16", "nan", "inf", "-inf". A
// non-zero value that would round to zero keeps ndigits significant digits (at least one):
// "1.23457e-09".
void append_number(std::string& line, double value, int ndigits);

// The same at `at`, which has kNumberRoom bytes. Returns the end.
char* write_number(char* at, double value, int ndigits);

// The same with so many significant digits, 1 to 17, of any value: "24.43167", "1.234567e-09".
char* write_significant(char* at, double value, int digits);

// Appends the value exactly, as Python's repr.
void append_repr(std::string& line, double value);

// Appends the value rounded to a whole number, without a point; or "nan", "inf", "-inf".
void append_count(std::string& line, double value);

// The same at `at`, which has kNumberRoom bytes. Returns the end.
char* write_count(char* at, double value);

// The titles as one line, with the line end.
std::string csv_header(const std::vector<RowColumn>& columns);

// Appends a cell as Python's csv module writes it: a text with a comma, a quote or a line end is quoted, with
// its quotes doubled; any other text is unchanged.
void append_cell(std::string& line, std::string_view text);

}  // namespace gradmon
