// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

namespace gradmon {

// The size of a terminal, in characters.
struct Screen {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

// The size of the terminal at a descriptor: COLUMNS and LINES if they are set, else the
// terminal's own size. nullopt if it is no terminal or its size is unknown.
std::optional<Screen> screen_of(int fd);

}  // namespace gradmon
