// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/raster.h"

#include <png.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

namespace gradmon {
namespace {

using Anchor = ChartText::Anchor;

constexpr std::size_t kCharacter = 6;
constexpr std::size_t kLine = 12;
constexpr std::size_t kMargin = 10;
constexpr std::size_t kTitle = 24;
constexpr std::size_t kLegendWidth = 150;
constexpr std::size_t kLegendBar = 16;
constexpr std::size_t kShadeHeight = 2;
constexpr std::size_t kLongestLabel = 60;  // bytes
constexpr std::size_t kStepLabel = 60;     // pixels between the labels of two columns

// Keeps both ends, which identify the label best.
std::string shortened(const std::string& label) {
  if (label.size() <= kLongestLabel) return label;
  const std::size_t half = (kLongestLabel - 3) / 2;
  std::size_t begin = half;
  std::size_t end = label.size() - half;
  const auto within = [&](std::size_t at) { return (static_cast<unsigned char>(label[at]) & 0xC0U) == 0x80; };
  while (begin > 0 && within(begin)) --begin;
  while (end < label.size() && within(end)) ++end;
  return label.substr(0, begin) + "..." + label.substr(end);
}

std::string scale_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", number);
  return text;
}

void add_rows(const HeatMap& map, ChartLayout& chart) {
  const std::size_t every = (kLine + chart.cell_height - 1) / chart.cell_height;
  for (std::size_t row = 0; row < map.rows.size(); row += every)
    chart.texts.push_back({shortened(map.rows[row]), chart.left - 4,
                           chart.top + row * chart.cell_height + std::max(chart.cell_height, kLine) / 2 + 3,
                           Anchor::end});
}

void add_steps(const HeatMap& map, ChartLayout& chart) {
  const std::size_t bottom = chart.top + map.rows.size() * chart.cell_height;
  const std::size_t every = (kStepLabel + chart.cell_width - 1) / chart.cell_width;
  for (std::size_t column = 0; column < map.columns(); column += every)
    chart.texts.push_back({std::to_string(map.first_steps[column]),
                           chart.left + column * chart.cell_width + chart.cell_width / 2, bottom + kLine,
                           Anchor::middle});
  chart.texts.push_back(
      {"step", chart.left + map.columns() * chart.cell_width / 2, bottom + 2 * kLine + 4, Anchor::middle});
}

void add_legend(const ColourScale& scale, std::size_t x, ChartLayout& chart) {
  constexpr std::size_t kMarks = 4;
  const std::size_t height = ColourScale::kShades * kShadeHeight;
  for (std::size_t shade = 0; shade < ColourScale::kShades; ++shade)
    chart.legend.push_back(
        {x, chart.top + height - (shade + 1) * kShadeHeight, kLegendBar, kShadeHeight, shade});
  for (std::size_t mark = 0; mark <= kMarks; ++mark) {
    const double place = static_cast<double>(mark) / kMarks;
    chart.texts.push_back({scale_text(scale.magnitude_at(place)), x + kLegendBar + 4,
                           chart.top + height - mark * height / kMarks + 3, Anchor::start});
  }
  std::size_t y = chart.top + height + kLine;
  const std::pair<std::size_t, const char*> own[] = {{ColourScale::kNan, "NaN"},
                                                     {ColourScale::kInfinite, "infinite"},
                                                     {ColourScale::kZero, "0"},
                                                     {ColourScale::kMissing, "no row"}};
  for (const auto& [cell_class, text] : own) {
    chart.legend.push_back({x, y, kLegendBar, kLine - 2, cell_class});
    chart.texts.push_back({text, x + kLegendBar + 4, y + kLine - 3, Anchor::start});
    y += kLine + 2;
  }
  if (scale.is_logarithmic()) chart.texts.push_back({"logarithmic", x, y + kLine - 3, Anchor::start});
}

}  // namespace

ChartLayout layout_of(const HeatMap& map, const ColourScale& scale) {
  ChartLayout chart;
  std::size_t label = 0;
  for (const std::string& row : map.rows) label = std::max(label, shortened(row).size());
  chart.left = kMargin + label * kCharacter + 4;
  chart.top = kMargin + kTitle;
  chart.cell_width = std::clamp<std::size_t>(800 / std::max<std::size_t>(map.columns(), 1), 2, 24);
  chart.cell_height = std::clamp<std::size_t>(900 / std::max<std::size_t>(map.rows.size(), 1), 4, 14);
  const std::size_t cells_width = map.columns() * chart.cell_width;
  const std::size_t legend_height = ColourScale::kShades * kShadeHeight + 7 * kLine;
  const std::size_t right = chart.left + cells_width + 2 * kMargin;
  chart.width = std::max(right + kLegendWidth, 2 * kMargin + map.title.size() * kCharacter);
  chart.height =
      chart.top + std::max(map.rows.size() * chart.cell_height + 3 * kLine, legend_height) + kMargin;
  chart.texts.push_back({map.title, kMargin, kMargin + kLine, Anchor::start});
  add_rows(map, chart);
  add_steps(map, chart);
  add_legend(scale, right, chart);
  return chart;
}

namespace {

constexpr char kFirst = ' ';
constexpr char kLast = '~';

// From ' ' to '~'.
constexpr std::array<Glyph, kLast - kFirst + 1> kGlyphs = {
    {{0x00, 0x00, 0x00, 0x00, 0x00}, {0x00, 0x00, 0x5F, 0x00, 0x00}, {0x00, 0x07, 0x00, 0x07, 0x00},
     {0x14, 0x7F, 0x14, 0x7F, 0x14}, {0x24, 0x2A, 0x7F, 0x2A, 0x12}, {0x23, 0x13, 0x08, 0x64, 0x62},
     {0x36, 0x49, 0x56, 0x20, 0x50}, {0x00, 0x05, 0x03, 0x00, 0x00}, {0x00, 0x1C, 0x22, 0x41, 0x00},
     {0x00, 0x41, 0x22, 0x1C, 0x00}, {0x2A, 0x1C, 0x7F, 0x1C, 0x2A}, {0x08, 0x08, 0x3E, 0x08, 0x08},
     {0x00, 0x50, 0x30, 0x00, 0x00}, {0x08, 0x08, 0x08, 0x08, 0x08}, {0x00, 0x60, 0x60, 0x00, 0x00},
     {0x20, 0x10, 0x08, 0x04, 0x02}, {0x3E, 0x51, 0x49, 0x45, 0x3E}, {0x00, 0x42, 0x7F, 0x40, 0x00},
     {0x42, 0x61, 0x51, 0x49, 0x46}, {0x21, 0x41, 0x45, 0x4B, 0x31}, {0x18, 0x14, 0x12, 0x7F, 0x10},
     {0x27, 0x45, 0x45, 0x45, 0x39}, {0x3C, 0x4A, 0x49, 0x49, 0x30}, {0x01, 0x71, 0x09, 0x05, 0x03},
     {0x36, 0x49, 0x49, 0x49, 0x36}, {0x06, 0x49, 0x49, 0x29, 0x1E}, {0x00, 0x36, 0x36, 0x00, 0x00},
     {0x00, 0x56, 0x36, 0x00, 0x00}, {0x08, 0x14, 0x22, 0x41, 0x00}, {0x14, 0x14, 0x14, 0x14, 0x14},
     {0x00, 0x41, 0x22, 0x14, 0x08}, {0x02, 0x01, 0x51, 0x09, 0x06}, {0x32, 0x49, 0x79, 0x41, 0x3E},
     {0x7E, 0x11, 0x11, 0x11, 0x7E}, {0x7F, 0x49, 0x49, 0x49, 0x36}, {0x3E, 0x41, 0x41, 0x41, 0x22},
     {0x7F, 0x41, 0x41, 0x22, 0x1C}, {0x7F, 0x49, 0x49, 0x49, 0x41}, {0x7F, 0x09, 0x09, 0x09, 0x01},
     {0x3E, 0x41, 0x49, 0x49, 0x7A}, {0x7F, 0x08, 0x08, 0x08, 0x7F}, {0x00, 0x41, 0x7F, 0x41, 0x00},
     {0x20, 0x40, 0x41, 0x3F, 0x01}, {0x7F, 0x08, 0x14, 0x22, 0x41}, {0x7F, 0x40, 0x40, 0x40, 0x40},
     {0x7F, 0x02, 0x0C, 0x02, 0x7F}, {0x7F, 0x04, 0x08, 0x10, 0x7F}, {0x3E, 0x41, 0x41, 0x41, 0x3E},
     {0x7F, 0x09, 0x09, 0x09, 0x06}, {0x3E, 0x41, 0x51, 0x21, 0x5E}, {0x7F, 0x09, 0x19, 0x29, 0x46},
     {0x46, 0x49, 0x49, 0x49, 0x31}, {0x01, 0x01, 0x7F, 0x01, 0x01}, {0x3F, 0x40, 0x40, 0x40, 0x3F},
     {0x1F, 0x20, 0x40, 0x20, 0x1F}, {0x3F, 0x40, 0x38, 0x40, 0x3F}, {0x63, 0x14, 0x08, 0x14, 0x63},
     {0x07, 0x08, 0x70, 0x08, 0x07}, {0x61, 0x51, 0x49, 0x45, 0x43}, {0x00, 0x7F, 0x41, 0x41, 0x00},
     {0x02, 0x04, 0x08, 0x10, 0x20}, {0x00, 0x41, 0x41, 0x7F, 0x00}, {0x04, 0x02, 0x01, 0x02, 0x04},
     {0x40, 0x40, 0x40, 0x40, 0x40}, {0x00, 0x01, 0x02, 0x04, 0x00}, {0x20, 0x54, 0x54, 0x54, 0x78},
     {0x7F, 0x48, 0x44, 0x44, 0x38}, {0x38, 0x44, 0x44, 0x44, 0x20}, {0x38, 0x44, 0x44, 0x48, 0x7F},
     {0x38, 0x54, 0x54, 0x54, 0x18}, {0x08, 0x7E, 0x09, 0x01, 0x02}, {0x0C, 0x52, 0x52, 0x52, 0x3E},
     {0x7F, 0x08, 0x04, 0x04, 0x78}, {0x00, 0x44, 0x7D, 0x40, 0x00}, {0x20, 0x40, 0x44, 0x3D, 0x00},
     {0x7F, 0x10, 0x28, 0x44, 0x00}, {0x00, 0x41, 0x7F, 0x40, 0x00}, {0x7C, 0x04, 0x18, 0x04, 0x78},
     {0x7C, 0x08, 0x04, 0x04, 0x78}, {0x38, 0x44, 0x44, 0x44, 0x38}, {0x7C, 0x14, 0x14, 0x14, 0x08},
     {0x08, 0x14, 0x14, 0x18, 0x7C}, {0x7C, 0x08, 0x04, 0x04, 0x08}, {0x48, 0x54, 0x54, 0x54, 0x20},
     {0x04, 0x3F, 0x44, 0x40, 0x20}, {0x3C, 0x40, 0x40, 0x20, 0x7C}, {0x1C, 0x20, 0x40, 0x20, 0x1C},
     {0x3C, 0x40, 0x30, 0x40, 0x3C}, {0x44, 0x28, 0x10, 0x28, 0x44}, {0x0C, 0x50, 0x50, 0x50, 0x3C},
     {0x44, 0x64, 0x54, 0x4C, 0x44}, {0x00, 0x08, 0x36, 0x41, 0x00}, {0x00, 0x00, 0x7F, 0x00, 0x00},
     {0x00, 0x41, 0x36, 0x08, 0x00}, {0x10, 0x08, 0x08, 0x10, 0x08}}};

}  // namespace

const Glyph& glyph_of(char character) {
  const bool printable = character >= kFirst && character <= kLast;
  return kGlyphs[static_cast<std::size_t>((printable ? character : '?') - kFirst)];
}

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

std::string png_of(const Raster& raster) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(raster.width);
  image.height = static_cast<png_uint_32>(raster.height);
  image.format = PNG_FORMAT_RGB_COLORMAP;
  image.colormap_entries = static_cast<png_uint_32>(raster.colours.size());
  std::vector<png_byte> colours;
  for (const Colour& colour : raster.colours)
    colours.insert(colours.end(), {colour.red, colour.green, colour.blue});
  std::string bytes;
  png_alloc_size_t size = 0;
  const void* const pixels = raster.pixels.data();
  if (png_image_write_to_memory(&image, nullptr, &size, 0, pixels, 0, colours.data()) == 0) return "";
  bytes.resize(size);
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels, 0, colours.data()) == 0) return "";
  bytes.resize(size);
  return bytes;
}

}  // namespace gradmon
