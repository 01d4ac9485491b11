// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/draw/svg.h"

#include <cmath>
#include <limits>

#include "control/debian_version.h"
#include "tests/support/golden.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

HeatMap small_map() {
  HeatMapBuilder builder(8, 8);
  for (int step = 0; step < 5; ++step) {
    builder.add(0, step, step == 3 ? 1000 : 1);
    builder.add(1, step, step >= 3 ? std::nan("") : 2);
  }
  builder.add(2, 1, std::numeric_limits<double>::infinity());
  HeatMap map = builder.build({"layers.0.weight", "layers.1.<weight>", "a & b"});
  map.title = "norm of grad_reduced";
  return map;
}

TEST_CASE("a small heat map matches its golden file") {
  CHECK(golden_difference("heat_map.svg", svg_of(small_map())) == "");
}

TEST_CASE("an empty heat map is a document without cells") {
  const std::string svg = svg_of(HeatMap());
  CHECK(svg.find("<svg") == 0);
  CHECK(svg.find("<path") == std::string::npos);
}

TEST_CASE("a heat map of the largest size stays below four megabytes") {
  HeatMapBuilder builder(256, 512);
  for (std::size_t row = 0; row < 256; ++row) {
    for (int step = 0; step < 512; ++step)
      builder.add(row, step, static_cast<double>(1 + (row * 31 + static_cast<std::size_t>(step) * 17) % 64));
  }
  CHECK(svg_of(builder.build(std::vector<std::string>(256, "layer"))).size() < 4'000'000);
}

}  // namespace
}  // namespace gradmon
