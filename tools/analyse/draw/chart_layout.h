// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/analyse/draw/colour_scale.h"
#include "tools/analyse/draw/heat_map.h"

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

}  // namespace gradmon
