// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/csv_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <system_error>

namespace gradmon {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr int kMostDecimals = 323;  // more do not change a double

// Decimals of the quick way below. A text of at most 15 digits reads back the same, so it is the shortest.
constexpr int kQuickDecimals = 15;

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
constexpr double kWholeLimit = 1e15;

constexpr std::array<char, 200> pairs_of_digits() {
  std::array<char, 200> pairs{};
  for (std::size_t i = 0; i < 100; ++i) {
    pairs[2 * i] = static_cast<char>('0' + i / 10);
    pairs[2 * i + 1] = static_cast<char>('0' + i % 10);
  }
  return pairs;
}
constexpr auto kPairs = pairs_of_digits();

char* write_text(char* at, std::string_view text) { return std::copy(text.begin(), text.end(), at); }

char* write_special(char* at, double value) {
  return write_text(at, std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

char* write_scientific(char* at, double value, int digits) {
  return std::to_chars(at, at + kNumberRoom, value, std::chars_format::scientific, digits - 1).ptr;
}

// Exactly `digits` digits, with zeros in front.
char* write_digits(char* at, std::uint64_t number, int digits) {
  char* const end = at + digits;
  char* to = end;
  for (; digits >= 2; digits -= 2) {
    to -= 2;
    std::memcpy(to, &kPairs[2 * (number % 100)], 2);
    number /= 100;
  }
  if (digits == 1) *--to = static_cast<char>('0' + number % 10);
  return end;
}

char* write_whole(char* at, std::uint64_t number) {
  if (number >= 10) return std::to_chars(at, at + 20, number).ptr;
  *at = static_cast<char>('0' + number);
  return at + 1;
}

// whole + units / 10^decimals
struct Rounded {
  std::uint64_t whole = 0;
  std::uint64_t units = 0;
};

// The absolute value of a finite number, rounded half to even on its exact binary value. nullopt: 15 digits
// do not suffice.
std::optional<Rounded> rounded(double value, int decimals) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const auto exponent = static_cast<int>(bits >> 52U & 0x7ffU);
  const std::uint64_t mantissa = (bits & ((std::uint64_t{1} << 52U) - 1)) | std::uint64_t{1} << 52U;
  const int shift = 1075 - exponent;  // the size is mantissa / 2^shift, unless it is 0 or denormal
  if (shift <= 0) return std::nullopt;
  if (shift > 120) return Rounded{};
  const std::uint64_t power = kPowers[static_cast<std::size_t>(decimals)];
  Rounded found;
  found.whole = shift < 64 ? mantissa >> shift : 0;
  const std::uint64_t fraction = shift < 64 ? mantissa - (found.whole << shift) : mantissa;
  const Wide exact = Wide{fraction} * power;  // below 2^103
  found.units = static_cast<std::uint64_t>(exact >> shift);
  const Wide rest = exact - (Wide{found.units} << shift);
  const Wide half = Wide{1} << (shift - 1);
  if (rest > half || (rest == half && found.units % 2 == 1)) ++found.units;
  if (found.units == power) {
    found.units = 0;
    ++found.whole;
  }
  if (found.whole >= kPowers[static_cast<std::size_t>(kQuickDecimals - decimals)]) return std::nullopt;
  return found;
}

// As Python's repr of units / 10^decimals, which is not zero and below 1e-4.
char* write_small(char* at, std::uint64_t units, int decimals) {
  for (; units % 10 == 0; --decimals) units /= 10;
  char* const first = at;
  char* end = write_whole(at + 1, units);
  const auto count = static_cast<int>(end - first) - 1;
  first[0] = first[1];
  first[1] = '.';
  if (count == 1) end = first + 1;
  const int exponent = decimals - count + 1;  // 5 to 15
  end = write_text(end, "e-");
  return write_digits(end, static_cast<std::uint64_t>(exponent), 2);
}

// As Python's repr. Values other than zero below 1e-4 belong to write_small().
char* write_plain(char* at, const Rounded& number, int decimals) {
  at = write_whole(at, number.whole);
  *at++ = '.';
  char* end = write_digits(at, number.units, decimals);
  while (end > at + 1 && end[-1] == '0') --end;
  return end;
}

char* write_repr(char* at, double value) {
  if (!std::isfinite(value)) return write_special(at, value);
  const double size = std::fabs(value);
  const bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  char* const end = std::to_chars(at, at + kNumberRoom, value, format).ptr;
  const bool whole = std::find(at, end, '.') == end;
  return whole && !scientific ? write_text(end, ".0") : end;
}

template <typename Write>
void append(std::string& line, Write write) {
  char text[kNumberRoom];
  line.append(text, write(text));
}

}  // namespace

char* write_number(char* at, double value, int ndigits) {
  if (!std::isfinite(value)) return write_special(at, value);
  const int decimals = std::clamp(ndigits, 0, kMostDecimals);
  if (decimals >= 1 && decimals <= kQuickDecimals) {
    if (const auto number = rounded(value, decimals)) {
      const bool zero = number->whole == 0 && number->units == 0;
      if (zero && value != 0) return write_scientific(at, value, decimals);
      if (std::signbit(value)) *at++ = '-';
      const bool small = !zero && number->whole == 0 && decimals > 4 &&
                         number->units < kPowers[static_cast<std::size_t>(decimals - 4)];
      return small ? write_small(at, number->units, decimals) : write_plain(at, *number, decimals);
    }
  }
  const char* const end = std::to_chars(at, at + kNumberRoom, value, std::chars_format::fixed, decimals).ptr;
  double read_back = 0;
  std::from_chars(at, end, read_back);
  if (read_back == 0 && value != 0) return write_scientific(at, value, std::max(decimals, 1));
  return write_repr(at, read_back);
}

char* write_significant(char* at, double value, int digits) {
  if (!std::isfinite(value) || value == 0) return write_repr(at, value);
  // A power of ten that log10() misses by one rounds to the same text.
  const int decimals = digits - 1 - static_cast<int>(std::floor(std::log10(std::fabs(value))));
  if (decimals >= 1 && decimals <= kQuickDecimals) return write_number(at, value, decimals);
  double rounded_value = 0;
  const auto read = std::from_chars(at, write_scientific(at, value, digits), rounded_value);
  return write_repr(at, read.ec == std::errc() ? rounded_value : value);  // else beyond the largest double
}

char* write_count(char* at, double value) {
  if (!std::isfinite(value)) return write_special(at, value);
  const double whole = std::round(value);
  if (std::fabs(whole) >= kWholeLimit || (whole == 0 && std::signbit(whole)))
    return std::to_chars(at, at + kNumberRoom, whole, std::chars_format::fixed, 0).ptr;
  if (whole < 0) *at++ = '-';
  return write_whole(at, static_cast<std::uint64_t>(std::fabs(whole)));
}

void append_number(std::string& line, double value, int ndigits) {
  append(line, [&](char* at) { return write_number(at, value, ndigits); });
}

void append_repr(std::string& line, double value) {
  append(line, [&](char* at) { return write_repr(at, value); });
}

void append_count(std::string& line, double value) {
  append(line, [&](char* at) { return write_count(at, value); });
}

std::string csv_header(const std::vector<RowColumn>& columns) {
  std::string header;
  for (const RowColumn& column : columns) header += (header.empty() ? "" : ",") + std::string(column.title);
  return header + '\n';
}

void append_cell(std::string& line, std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    line += text;
    return;
  }
  line += '"';
  for (const char c : text) {
    if (c == '"') line += '"';
    line += c;
  }
  line += '"';
}

}  // namespace gradmon
