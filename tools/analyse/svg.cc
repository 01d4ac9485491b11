// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/svg.h"

#include <array>

#include "tools/analyse/colour_scale.h"
#include "tools/analyse/raster.h"

namespace gradmon {
namespace {

std::string text_of(std::size_t number) { return std::to_string(number); }

std::string escaped(const std::string& text) {
  std::string made;
  for (const char c : text) {
    if (c == '&') {
      made += "&amp;";
    } else if (c == '<') {
      made += "&lt;";
    } else if (c == '>') {
      made += "&gt;";
    } else {
      made += c;
    }
  }
  return made;
}

// One path for each colour, with one rectangle for each run of equal cells in a row; in units of cells.
std::string cells_of(const HeatMap& map, const ColourScale& scale) {
  std::array<std::string, ColourScale::kClasses> paths;
  for (std::size_t row = 0; row < map.rows.size(); ++row) {
    for (std::size_t first = 0, next = 0; first < map.columns(); first = next) {
      const std::size_t cell_class = scale.class_of(map.cell(row, first));
      next = first + 1;
      while (next < map.columns() && scale.class_of(map.cell(row, next)) == cell_class) ++next;
      if (cell_class == ColourScale::kMissing) continue;
      const std::string width = text_of(next - first);
      paths[cell_class] += "M" + text_of(first) + " " + text_of(row) + "h" + width + "v1h-" + width + "z";
    }
  }
  std::string svg;
  for (std::size_t cell_class = 0; cell_class < paths.size(); ++cell_class) {
    if (!paths[cell_class].empty())
      svg += "<path fill=\"" + hex_of(ColourScale::colour_of(cell_class)) + "\" d=\"" + paths[cell_class] +
             "\"/>\n";
  }
  return svg;
}

std::string box_of(const ChartBox& box) {
  const bool outlined = box.cell_class == ColourScale::kMissing;
  return "<rect x=\"" + text_of(box.x) + "\" y=\"" + text_of(box.y) + "\" width=\"" + text_of(box.width) +
         "\" height=\"" + text_of(box.height) + "\" fill=\"" +
         hex_of(ColourScale::colour_of(box.cell_class)) + "\"" + (outlined ? " stroke=\"#888888\"" : "") +
         "/>\n";
}

std::string element_of(const ChartText& text) {
  constexpr std::array<const char*, 3> kAnchors = {"start", "middle", "end"};
  return "<text x=\"" + text_of(text.x) + "\" y=\"" + text_of(text.y) + "\" text-anchor=\"" +
         kAnchors[static_cast<std::size_t>(text.anchor)] + "\">" + escaped(text.text) + "</text>\n";
}

}  // namespace

std::string svg_of(const HeatMap& map) {
  const ColourScale scale(map);
  const ChartLayout chart = layout_of(map, scale);
  const std::string width = text_of(chart.width);
  const std::string height = text_of(chart.height);
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" + height +
                    "\" viewBox=\"0 0 " + width + " " + height +
                    "\" font-family=\"monospace\" font-size=\"10\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  for (const ChartText& text : chart.texts) svg += element_of(text);
  svg += "<g shape-rendering=\"crispEdges\">\n";
  for (const ChartBox& box : chart.legend) svg += box_of(box);
  svg += "<g transform=\"translate(" + text_of(chart.left) + " " + text_of(chart.top) + ") scale(" +
         text_of(chart.cell_width) + " " + text_of(chart.cell_height) + ")\">\n" + cells_of(map, scale) +
         "</g>\n</g>\n</svg>\n";
  return svg;
}

}  // namespace gradmon
