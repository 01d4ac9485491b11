// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/number_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

namespace gradmon {
namespace {

constexpr int kMostDecimals = 323;        // more do not change a double
constexpr std::size_t kRoom = 640;        // sign, 309 digits, point, decimals
constexpr std::size_t kExactDigits = 15;  // text with at most this many reads back the same

bool append_special(std::string& line, double value) {
  if (std::isfinite(value)) return false;
  line += std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  return true;
}

void append_significant(std::string& line, double value, int digits) {
  char text[kRoom];
  line.append(text, std::to_chars(text, text + kRoom, value, std::chars_format::scientific, digits - 1).ptr);
}

}  // namespace

void append_number(std::string& line, double value, int ndigits) {
  if (append_special(line, value)) return;
  const int decimals = std::clamp(ndigits, 0, kMostDecimals);
  char text[kRoom];
  const char* const end = std::to_chars(text, text + kRoom, value, std::chars_format::fixed, decimals).ptr;
  std::string_view rounded(text, static_cast<std::size_t>(end - text));
  const std::string_view size = rounded.substr(rounded.front() == '-' ? 1 : 0);
  const bool zero = size.find_first_not_of("0.") == std::string_view::npos;
  if (zero && value != 0) return append_significant(line, value, std::max(decimals, 1));

  const bool tiny = !zero && size.substr(0, 6) == "0.0000";
  if (tiny || size.size() > kExactDigits + 1 || decimals == 0) {
    double nearest = 0;
    std::from_chars(text, end, nearest);
    return append_repr(line, nearest);
  }
  const std::size_t last = rounded.find_last_not_of('0');
  rounded = rounded.substr(0, last + (rounded[last] == '.' ? 2 : 1));
  line += rounded;
}

void append_repr(std::string& line, double value) {
  if (append_special(line, value)) return;
  char text[kRoom];
  const double size = std::fabs(value);
  const bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(text, text + kRoom, value, format).ptr;
  const bool whole = std::find(text, end, '.') == end;
  line.append(text, end);
  if (whole && !scientific) line += ".0";
}

void append_count(std::string& line, double value) {
  if (append_special(line, value)) return;
  char text[kRoom];
  line.append(text, std::to_chars(text, text + kRoom, std::round(value), std::chars_format::fixed, 0).ptr);
}

}  // namespace gradmon
