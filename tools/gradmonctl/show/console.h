// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostream>

#include "tools/gradmonctl/show/screen.h"

namespace gradmon {

// Where a command writes: data to `out`, messages for people to `err`.
struct Console {
  std::ostream& out;
  std::ostream& err;
  bool clears_screen = false;         // `out` is a terminal that knows how
  std::optional<Screen> screen = {};  // of the terminal that `out` is; none: it is none
};

// What gradmonctl ends with; those that a job decides are CommandOutcome.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoAnswer = 4;
inline constexpr int kExitNotAllowed = 5;
inline constexpr int kExitInvalidConfig = 6;
inline constexpr int kExitPartial = 7;

}  // namespace gradmon
