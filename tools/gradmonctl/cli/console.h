// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <ostream>
#include <string>

namespace gradmon {

// The size of a terminal, in characters.
struct Screen {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

// The size of the terminal at a descriptor: COLUMNS and LINES if they are set, else the
// terminal's own size. nullopt if it is no terminal or its size is unknown.
std::optional<Screen> terminal_size(int fd);

// The outputs of a command: data to `out`, messages for people to `err`.
struct Console {
  std::ostream& out;
  std::ostream& err;
  bool clears_screen = false;         // `out` is a terminal that can clear its screen
  std::optional<Screen> screen = {};  // nullopt: `out` is no terminal, or its size is unknown
};

// The exit codes of gradmonctl. A job's CommandOutcome is also used as an exit code.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoAnswer = 4;
inline constexpr int kExitNotAllowed = 5;
inline constexpr int kExitInvalidConfig = 6;
inline constexpr int kExitPartial = 7;

// Prints one error, made printable, to `console.err`. Returns kExitFailed.
int report_error(const std::string& text, const Console& console);

}  // namespace gradmon
