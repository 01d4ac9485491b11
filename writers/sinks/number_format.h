// SPDX-License-Identifier: Apache-2.0
// Numbers as CSV cells, the way Python prints round(x, ndigits). No allocation
// beyond the growth of `line`.
#pragma once

#include <string>

namespace gradmon {

// Rounded to ndigits decimals (half to even on the exact binary value), then the
// shortest text that reads back the same, as repr: "0.0", "1e-05", "1e+16",
// "nan", "inf", "-inf". A non-zero value that the rounding would make zero keeps
// ndigits significant digits (at least one): "1.23457e-09".
void append_number(std::string& line, double value, int ndigits);

// A whole number without a point; "nan", "inf", "-inf" where it is none.
void append_count(std::string& line, double value);

}  // namespace gradmon
