// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/show/printable.h"

#include <algorithm>
#include <array>

namespace gradmon {
namespace {

bool continues(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// Bytes of the well-formed UTF-8 character at the beginning, 0 where there is
// none; its code point in `code`.
std::size_t decode(std::string_view text, char32_t& code) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t size = first < 0x80   ? 1
                           : first < 0xC2 ? 0
                           : first < 0xE0 ? 2
                           : first < 0xF0 ? 3
                           : first < 0xF5 ? 4
                                          : 0;
  if (size == 0 || size > text.size()) return 0;
  code = size == 1 ? first : first & (0xFFU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if (!continues(byte(i))) return 0;
    code = (code << 6) | (byte(i) & 0x3FU);
  }
  constexpr std::array<char32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < kLeast[size] || surrogate || code > 0x10FFFF ? 0 : size;
}

bool disturbs(char32_t code) {
  const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
  const bool separates_lines = code == 0x2028 || code == 0x2029;
  const bool reorders = code == 0x200E || code == 0x200F || (code >= 0x202A && code <= 0x202E) ||
                        (code >= 0x2066 && code <= 0x2069);
  return control || separates_lines || reorders;
}

std::string escaped(std::string_view bytes) {
  if (bytes == "\n") return "\\n";
  if (bytes == "\t") return "\\t";
  if (bytes == "\r") return "\\r";
  std::string result;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    result += "\\x";
    result += "0123456789abcdef"[byte >> 4];
    result += "0123456789abcdef"[byte & 15];
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    char32_t code = 0;
    const std::size_t size = decode(text, code);
    const std::string_view piece = text.substr(0, std::max<std::size_t>(size, 1));
    result += size == 0 || disturbs(code) ? escaped(piece) : std::string(piece);
    text.remove_prefix(piece.size());
  }
  return result;
}

std::string printable_lines(std::string_view text, std::string_view between) {
  std::string result;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (!line.empty()) result.append(result.empty() ? "" : between).append(printable(line));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return result;
}

}  // namespace gradmon
