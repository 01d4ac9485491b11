// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/printable.h"

#include <algorithm>

#include "control/text/utf8.h"

namespace gradmon {
namespace {

bool is_unsafe(char32_t code) {
  const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
  const bool separates_lines = code == 0x2028 || code == 0x2029;
  const bool reorders = code == 0x061C || code == 0x200E || code == 0x200F ||
                        (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  const bool invisible = code == 0x200B || code == 0xFEFF;
  return control || separates_lines || reorders || invisible;
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
    const auto [size, code] = utf8_character(text, 0);
    const std::string_view piece = text.substr(0, std::max<std::size_t>(size, 1));
    result += size == 0 || is_unsafe(code) ? escaped(piece) : std::string(piece);
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
