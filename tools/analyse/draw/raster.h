// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/analyse/draw/chart_layout.h"
#include "tools/analyse/draw/heat_map.h"

namespace gradmon {

// An image of at most 256 colours. A value.
struct Raster {
  std::size_t width = 0;
  std::size_t height = 0;
  std::vector<Colour> colours;
  std::vector<std::uint8_t> pixels;  // row by row: indices into `colours`
};

// The heat map as pixels.
Raster raster_of(const HeatMap& map);

}  // namespace gradmon
