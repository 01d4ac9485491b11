// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

namespace gradmon {

// What a terminal shows at once, in characters.
struct Screen {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

// The screen of the terminal behind a descriptor: COLUMNS and LINES where they are set,
// else its own size. None where it is no terminal, or none that tells its size.
std::optional<Screen> screen_of(int fd);

}  // namespace gradmon
