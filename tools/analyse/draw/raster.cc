// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/draw/raster.h"

#include <algorithm>
#include <utility>

#include "tools/analyse/draw/bitmap_font.h"

namespace gradmon {
namespace {

constexpr std::size_t kCharacterWidth = kGlyphColumns + 1;
// Beside the classes of ColourScale.
constexpr auto kInk = static_cast<std::uint8_t>(ColourScale::kClasses);
constexpr auto kOutline = static_cast<std::uint8_t>(ColourScale::kClasses + 1);

class Canvas {
 public:
  Canvas(std::size_t width, std::size_t height) {
    raster_.width = width;
    raster_.height = height;
    raster_.pixels.assign(width * height, static_cast<std::uint8_t>(ColourScale::kMissing));
    for (std::size_t one = 0; one < ColourScale::kClasses; ++one)
      raster_.colours.push_back(ColourScale::colour_of(one));
    raster_.colours.push_back({0, 0, 0});
    raster_.colours.push_back({136, 136, 136});
  }

  // Cuts parts outside the image.
  void fill(const ChartBox& box, std::size_t colour) {
    const std::size_t right = std::min(box.x + box.width, raster_.width);
    for (std::size_t y = box.y; y < std::min(box.y + box.height, raster_.height); ++y) {
      for (std::size_t x = box.x; x < right; ++x)
        raster_.pixels[y * raster_.width + x] = static_cast<std::uint8_t>(colour);
    }
  }

  void write(const ChartText& text) {
    const auto is_continued = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80; };
    const auto characters = static_cast<std::size_t>(
        std::count_if(text.text.begin(), text.text.end(), [&](char c) { return !is_continued(c); }));
    const std::size_t width = characters * kCharacterWidth;
    std::size_t x = text.x;
    if (text.anchor == ChartText::Anchor::end) x -= std::min(x, width);
    if (text.anchor == ChartText::Anchor::middle) x -= std::min(x, width / 2);
    for (const char c : text.text) {
      if (is_continued(c)) continue;
      write_glyph(glyph_of(c), x, text.y - std::min(text.y, kGlyphRows));
      x += kCharacterWidth;
    }
  }

  Raster take() { return std::move(raster_); }

 private:
  void write_glyph(const Glyph& glyph, std::size_t x, std::size_t y) {
    for (std::size_t column = 0; column < kGlyphColumns; ++column) {
      for (std::size_t row = 0; row < kGlyphRows; ++row) {
        if ((glyph[column] >> row & 1U) != 0) fill({x + column, y + row, 1, 1, 0}, kInk);
      }
    }
  }

  Raster raster_;
};

}  // namespace

Raster raster_of(const HeatMap& map) {
  const ColourScale scale(map);
  const ChartLayout chart = layout_of(map, scale);
  Canvas canvas(chart.width, chart.height);
  for (std::size_t row = 0; row < map.rows.size(); ++row) {
    for (std::size_t column = 0; column < map.columns(); ++column)
      canvas.fill({chart.left + column * chart.cell_width, chart.top + row * chart.cell_height,
                   chart.cell_width, chart.cell_height, 0},
                  scale.class_of(map.cell(row, column)));
  }
  for (const ChartBox& box : chart.legend) {
    const bool outlined = box.cell_class == ColourScale::kMissing;
    canvas.fill(box, outlined ? kOutline : box.cell_class);
    if (outlined) canvas.fill({box.x + 1, box.y + 1, box.width - 2, box.height - 2, 0}, box.cell_class);
  }
  for (const ChartText& text : chart.texts) canvas.write(text);
  return canvas.take();
}

}  // namespace gradmon
