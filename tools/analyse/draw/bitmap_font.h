// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gradmon {

// A character as five columns of seven pixels; bit 0 is the highest pixel.
inline constexpr std::size_t kGlyphColumns = 5;
inline constexpr std::size_t kGlyphRows = 7;
using Glyph = std::array<std::uint8_t, kGlyphColumns>;

// Returns a question mark for all but printable ASCII.
const Glyph& glyph_of(char character);

}  // namespace gradmon
