// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/draw/raster.h"

#include <algorithm>
#include <cmath>

#include "control/debian_version.h"
#include "tools/analyse/draw/bitmap_font.h"
#include "tools/analyse/draw/png.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

HeatMap small_map() {
  HeatMapBuilder builder(8, 8);
  builder.add(0, 0, 1);
  builder.add(0, 1, 1000);
  builder.add(1, 1, std::nan(""));
  HeatMap map = builder.build({"layers.0", "\xC3\xA4"});
  map.title = "norm";
  return map;
}

TEST_CASE("cells have their colours in the pixels") {
  const HeatMap map = small_map();
  const ColourScale scale(map);
  const ChartLayout chart = layout_of(map, scale);
  const Raster raster = raster_of(map);
  CHECK(raster.pixels.size() == raster.width * raster.height);
  const auto pixel = [&](std::size_t row, std::size_t column) {
    const std::size_t y = chart.top + row * chart.cell_height + chart.cell_height / 2;
    return raster.pixels[y * raster.width + chart.left + column * chart.cell_width + chart.cell_width / 2];
  };
  CHECK(pixel(0, 0) == 0);
  CHECK(pixel(0, 1) == ColourScale::kShades - 1);
  CHECK(pixel(1, 0) == ColourScale::kMissing);
  CHECK(pixel(1, 1) == ColourScale::kNan);
  CHECK(std::count(raster.pixels.begin(), raster.pixels.end(), ColourScale::kClasses) > 100);  // text
}

TEST_CASE("the PNG has the size and the signature of one") {
  const Raster raster = raster_of(small_map());
  const std::string png = png_of(raster);
  REQUIRE(png.size() > 24);
  CHECK(png.compare(0, 8, "\x89PNG\r\n\x1a\n") == 0);
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(png[at]));
  };
  CHECK((byte(18) << 8) + byte(19) == raster.width);
  CHECK((byte(22) << 8) + byte(23) == raster.height);
  CHECK(png.find("IEND") != std::string::npos);
}

TEST_CASE("a character without a glyph is a question mark") {
  CHECK(glyph_of('\n') == glyph_of('?'));
  CHECK(glyph_of('\xC3') == glyph_of('?'));
  CHECK(glyph_of('A') != glyph_of('?'));
}

}  // namespace
}  // namespace gradmon
