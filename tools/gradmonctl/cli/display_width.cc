// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/display_width.h"

#include <algorithm>
#include <clocale>
#include <cwchar>

namespace gradmon {
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

}  // namespace gradmon
