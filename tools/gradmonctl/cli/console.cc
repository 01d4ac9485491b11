// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

// The number in an environment variable; `otherwise` unless it is a number above 0.
std::size_t number_in(const char* name, std::size_t otherwise) {
  const char* value = std::getenv(name);
  if (value == nullptr) return otherwise;
  const std::string_view text(value);
  std::size_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  return whole && number > 0 ? number : otherwise;
}

}  // namespace

std::optional<Screen> terminal_size(int fd) {
  if (isatty(fd) != 1) return {};
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) size = {};
  const Screen screen{number_in("COLUMNS", size.ws_col), number_in("LINES", size.ws_row)};
  return screen.columns == 0 || screen.rows == 0 ? std::nullopt : std::optional(screen);
}

int report_error(const std::string& text, const Console& console) {
  console.err << "gradmonctl: " << printable(text) << '\n';
  return kExitFailed;
}

}  // namespace gradmon
