// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/draw/chart_layout.h"

#include <algorithm>
#include <cstdio>

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

std::string number_text(double number) {
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
    chart.texts.push_back({number_text(scale.magnitude_at(place)), x + kLegendBar + 4,
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

}  // namespace gradmon
