// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/draw/heat_map.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "control/debian_version.h"
#include "tools/analyse/draw/colour_scale.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

const double kNan = std::nan("");

float largest(const HeatMap& map) { return *std::max_element(map.cells.begin(), map.cells.end()); }

TEST_CASE("cells show the largest magnitude and steps without rows are left out") {
  HeatMapBuilder builder(10, 10);
  builder.add(0, 3, 1);
  builder.add(0, 3, -5);
  builder.add(1, 8, 2);
  const HeatMap map = builder.build({"a", "b"});
  CHECK(map.rows == std::vector<std::string>{"a", "b"});
  CHECK(map.first_steps == std::vector<std::int64_t>{3, 8});
  CHECK(map.last_step == 8);
  CHECK(map.cell(0, 0) == 5);
  CHECK(map.cell(0, 1) == HeatMap::kMissing);
  CHECK(map.cell(1, 1) == 2);
}

TEST_CASE("a spike and a NaN survive any shrinking in any order of steps") {
  for (const int direction : {1, -1}) {
    HeatMapBuilder builder(4, 8);
    for (int i = 0; i < 5000; ++i) {
      const int step = direction > 0 ? i : 4999 - i;
      for (std::size_t row = 0; row < 10; ++row) builder.add(row, step, row == 7 && step == 1234 ? 1e6 : 1);
    }
    builder.add(2, 4321, kNan);
    builder.add(2, 4321, 9);
    const HeatMap map = builder.build(std::vector<std::string>(10, "x"));
    CHECK(map.rows.size() == 4);
    CHECK(map.columns() <= 8);
    CHECK(map.columns() >= 4);
    std::size_t spikes = 0, nans = 0;
    for (const float cell : map.cells) {
      if (cell == 1e6F) ++spikes;
      if (std::isnan(cell)) ++nans;
    }
    CHECK(spikes == 1);
    CHECK(nans == 1);
  }
}

TEST_CASE("steps may be as large as a step can be") {
  HeatMapBuilder builder(4, 8);
  builder.add(0, std::numeric_limits<std::int64_t>::max(), 2);
  builder.add(0, 0, 1);
  const HeatMap map = builder.build({"a"});
  CHECK(map.columns() == 2);
  CHECK(largest(map) == 2);
}

TEST_CASE("fewer columns keep all values") {
  HeatMapBuilder builder(4, 64);
  for (int step = 0; step < 60; ++step) builder.add(0, step, step);
  builder.limit_columns(4);
  builder.add(1, 100, 7);
  const HeatMap map = builder.build({"a", "b"});
  CHECK(map.columns() <= 4);
  CHECK(largest(map) == 59);
}

TEST_CASE("the scale is logarithmic for a wide range and keeps NaN and infinities apart") {
  HeatMap map;
  map.rows = {"a"};
  map.first_steps = {0, 1, 2, 3};
  map.cells = {1e-3F, 1, 1e3F, std::numeric_limits<float>::infinity()};
  const ColourScale scale(map);
  CHECK(scale.is_logarithmic());
  CHECK(scale.class_of(1e-3F) == 0);
  CHECK(scale.class_of(0) == ColourScale::kZero);
  CHECK(std::abs(static_cast<int>(scale.class_of(1)) - static_cast<int>(ColourScale::kShades / 2)) <= 1);
  CHECK(scale.class_of(1e3F) == ColourScale::kShades - 1);
  CHECK(scale.class_of(map.cells[3]) == ColourScale::kInfinite);
  CHECK(scale.class_of(std::nanf("")) == ColourScale::kNan);
  CHECK(scale.class_of(HeatMap::kMissing) == ColourScale::kMissing);
  map.cells = {1, 2, 3, 4};
  CHECK(!ColourScale(map).is_logarithmic());
}

}  // namespace
}  // namespace gradmon
