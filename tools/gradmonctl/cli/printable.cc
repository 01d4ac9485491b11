// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/printable.h"

#include <algorithm>
#include <array>
#include <clocale>
#include <ctime>
#include <cwchar>
#include <map>

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

namespace {

constexpr const char* kEllipsis = "…";  // one column

// Switches this thread's locale to UTF-8 for its lifetime, so that libc gives the widths.
class Utf8Characters {
 public:
  Utf8Characters() : before_(uselocale(utf8())) {}
  ~Utf8Characters() { uselocale(before_); }
  Utf8Characters(const Utf8Characters&) = delete;
  Utf8Characters& operator=(const Utf8Characters&) = delete;

 private:
  // Null if the system has no C.UTF-8: each byte then counts as one column, which is never too few.
  static locale_t utf8() {
    static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    return locale;
  }

  const locale_t before_;
};

struct Character {
  std::size_t bytes = 1;
  std::size_t columns = 1;
};

Character first_of(std::string_view text) {
  std::mbstate_t state{};
  wchar_t code = 0;
  const std::size_t bytes = std::mbrtowc(&code, text.data(), text.size(), &state);
  if (bytes == 0 || bytes > text.size()) return {};
  return {bytes, static_cast<std::size_t>(std::max(wcwidth(code), 0))};
}

// The length in bytes of the longest prefix that fits into `columns`, with the combining
// characters at its end.
std::size_t bytes_within(std::string_view text, std::size_t columns) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const Character next = first_of(text.substr(bytes));
    if (next.columns > columns) break;
    columns -= next.columns;
    bytes += next.bytes;
  }
  return bytes;
}

}  // namespace

std::size_t display_width(std::string_view text) {
  const Utf8Characters characters;
  std::size_t columns = 0;
  while (!text.empty()) {
    const Character next = first_of(text);
    columns += next.columns;
    text.remove_prefix(next.bytes);
  }
  return columns;
}

std::string cut_to_width(std::string_view line, std::size_t columns) {
  const Utf8Characters characters;
  if (bytes_within(line, columns) == line.size()) return std::string(line);
  if (columns == 0) return "";
  return std::string(line.substr(0, bytes_within(line, columns - 1))) + kEllipsis;
}

std::string rank_ranges(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (first == 0 ? "" : ", ") + std::to_string(ranks[first]);
    if (last > first) text += (last == first + 1 ? ", " : "-") + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

std::vector<std::string> grouped_by_text(const std::vector<std::pair<int, std::string>>& texts) {
  std::map<std::string, std::vector<int>> ranks;
  std::vector<std::string> order;
  for (const auto& [rank, text] : texts) {
    if (ranks[text].empty()) order.push_back(text);
    ranks[text].push_back(rank);
  }
  for (std::string& text : order) text = rank_ranges(ranks[text]) + ": " + text;
  return order;
}

std::string utc_text(WallTime time) {
  if (time == 0) return {};
  const std::time_t seconds = time / 1000;
  std::tm parts{};
  std::array<char, 64> text{};
  if (gmtime_r(&seconds, &parts) == nullptr) return "?";
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

std::string span_text(std::int64_t milliseconds) {
  const std::int64_t seconds = milliseconds / 1000;
  if (milliseconds < 1000) return std::to_string(milliseconds) + " ms";
  if (seconds < 10) return std::to_string(seconds) + "." + std::to_string(milliseconds / 100 % 10) + " s";
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 7200) return std::to_string(seconds / 60) + " min";
  return std::to_string(seconds / 3600) + " h";
}

}  // namespace gradmon
