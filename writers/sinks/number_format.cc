// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/number_format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace gradmon {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr int kMostDecimals = 323;  // more do not change a double
constexpr std::size_t kRoom = 640;  // sign, 309 digits, point, decimals

// Decimals of the quick way below. A text of at most 15 digits reads back the same, so it is the shortest.
constexpr int kQuickDecimals = 15;
constexpr std::uint64_t kQuickLimit = 1'000'000'000'000'000;

constexpr std::array<std::uint64_t, kQuickDecimals + 1> powers_of_ten() {
  std::array<std::uint64_t, kQuickDecimals + 1> powers{};
  std::uint64_t power = 1;
  for (std::uint64_t& each : powers) {
    each = power;
    power *= 10;
  }
  return powers;
}
constexpr auto kPowers = powers_of_ten();

bool append_special(std::string& line, double value) {
  if (std::isfinite(value)) return false;
  line += std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  return true;
}

void append_significant(std::string& line, double value, int digits) {
  char text[kRoom];
  line.append(text, std::to_chars(text, text + kRoom, value, std::chars_format::scientific, digits - 1).ptr);
}

// `size` in units of 10^-decimals, rounded half to even on its exact binary value. kQuickLimit: too large.
std::uint64_t rounded_units(double size, int decimals) {
  std::uint64_t bits;
  std::memcpy(&bits, &size, sizeof bits);
  const auto exponent = static_cast<int>(bits >> 52U);
  const std::uint64_t mantissa = (bits & ((std::uint64_t{1} << 52U) - 1)) | std::uint64_t{1} << 52U;
  const int shift = 1075 - exponent;  // size is mantissa / 2^shift, unless it is 0 or denormal
  if (shift <= 0) return kQuickLimit;
  if (shift > 120) return 0;
  const Wide exact = Wide{mantissa} * kPowers[static_cast<std::size_t>(decimals)];  // below 2^103
  const Wide whole = exact >> shift;
  if (whole >= kQuickLimit) return kQuickLimit;
  const Wide rest = exact - (whole << shift);
  const Wide half = Wide{1} << (shift - 1);
  const auto units = static_cast<std::uint64_t>(whole);
  return units + (rest > half || (rest == half && units % 2 == 1) ? 1 : 0);
}

// As Python's repr of units / 10^decimals.
void append_units(std::string& line, bool negative, std::uint64_t units, int decimals) {
  for (; decimals > 1 && units % 10 == 0; --decimals) units /= 10;
  char text[48];
  char* const digits = text + 24;  // with room before them for what precedes the first
  char* end = std::to_chars(digits, text + sizeof text, units).ptr;
  char* begin = digits;
  const auto count = static_cast<int>(end - digits);
  const int places = count - decimals;  // before the point
  if (places > 0) {
    begin = std::copy(digits, digits + places, digits - 1) - places;
    digits[places - 1] = '.';
  } else if (places > -4) {
    begin -= 2 - places;
    std::fill(begin, digits, '0');
    begin[1] = '.';
  } else {
    if (count > 1) {
      *--begin = digits[0];
      digits[0] = '.';
    }
    const int exponent = 1 - places;  // 5 to 15
    for (const char c :
         {'e', '-', static_cast<char>('0' + exponent / 10), static_cast<char>('0' + exponent % 10)})
      *end++ = c;
  }
  if (negative) *--begin = '-';
  line.append(begin, end);
}

}  // namespace

void append_number(std::string& line, double value, int ndigits) {
  if (append_special(line, value)) return;
  const int decimals = std::clamp(ndigits, 0, kMostDecimals);
  if (decimals >= 1 && decimals <= kQuickDecimals) {
    const std::uint64_t units = rounded_units(std::fabs(value), decimals);
    if (units == 0 && value != 0) return append_significant(line, value, decimals);
    if (units < kQuickLimit) return append_units(line, std::signbit(value), units, decimals);
  }
  char text[kRoom];
  const char* const end = std::to_chars(text, text + kRoom, value, std::chars_format::fixed, decimals).ptr;
  double rounded = 0;
  std::from_chars(text, end, rounded);
  if (rounded == 0 && value != 0) return append_significant(line, value, std::max(decimals, 1));
  append_repr(line, rounded);
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
  const double whole = std::round(value);
  char text[kRoom];
  const bool exact = std::fabs(whole) < 1e15 && !(whole == 0 && std::signbit(whole));
  line.append(text, exact ? std::to_chars(text, text + kRoom, static_cast<std::int64_t>(whole)).ptr
                          : std::to_chars(text, text + kRoom, whole, std::chars_format::fixed, 0).ptr);
}

}  // namespace gradmon
