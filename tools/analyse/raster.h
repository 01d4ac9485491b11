// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/analyse/colour_scale.h"
#include "tools/analyse/heat_map.h"

namespace gradmon {

// A text in a chart. `x`, `y`: its baseline, in pixels from the top left.
struct ChartText {
  enum class Anchor { start, middle, end };
  std::string text;
  std::size_t x = 0;
  std::size_t y = 0;
  Anchor anchor = Anchor::start;
};

// A filled rectangle, in pixels.
struct ChartBox {
  std::size_t x = 0;
  std::size_t y = 0;
  std::size_t width = 0;
  std::size_t height = 0;
  std::size_t cell_class = 0;  // of ColourScale
};

// The places of the parts of a heat map, for every format. A value.
struct ChartLayout {
  std::size_t width = 0;
  std::size_t height = 0;
  std::size_t left = 0;  // of the cells
  std::size_t top = 0;
  std::size_t cell_width = 1;
  std::size_t cell_height = 1;
  std::vector<ChartText> texts;  // title, labels, legend
  std::vector<ChartBox> legend;
};

// Characters are 6 pixels wide and 10 high.
ChartLayout layout_of(const HeatMap& map, const ColourScale& scale);

// A character as five columns of seven pixels; bit 0 is the highest pixel.
inline constexpr std::size_t kGlyphColumns = 5;
inline constexpr std::size_t kGlyphRows = 7;
using Glyph = std::array<std::uint8_t, kGlyphColumns>;

// Returns a question mark for all but printable ASCII.
const Glyph& glyph_of(char character);

// An image of at most 256 colours. A value.
struct Raster {
  std::size_t width = 0;
  std::size_t height = 0;
  std::vector<Colour> colours;
  std::vector<std::uint8_t> pixels;  // row by row: indices into `colours`
};

// The heat map as pixels.
Raster raster_of(const HeatMap& map);

// The image as the bytes of a PNG file; "" if libpng cannot make it.
std::string png_of(const Raster& raster);

}  // namespace gradmon
