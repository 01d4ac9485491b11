// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/layer_series.h"

#include <cmath>
#include <limits>
#include <vector>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

LayerSeries series_of(const std::vector<double>& sizes) {
  LayerSeries series;
  for (std::size_t step = 0; step < sizes.size(); ++step)
    series.add(static_cast<std::int64_t>(step), sizes[step]);
  series.end();
  return series;
}

TEST_CASE("the largest change is up or down from one step to the next") {
  const SizeChange up = series_of({1, 2, 100, 90}).largest_change();
  CHECK(up.factor == 50);
  CHECK(up.step == 2);
  CHECK(up.from_step == 1);
  CHECK(up.before == 2);
  CHECK(up.after == 100);
  CHECK(series_of({100, 1, 2}).largest_change().factor == 100);
}

TEST_CASE("a size of zero counts as a millionth of the largest one before") {
  CHECK(std::abs(series_of({2, 0, 0}).largest_change().factor - 1e6) < 1e-3);
  CHECK(series_of({0, 0, 1}).largest_change().step == -1);
}

TEST_CASE("several rows of a step count as the largest and earlier steps are left out") {
  LayerSeries series;
  for (const auto& [step, size] :
       std::vector<std::pair<std::int64_t, double>>{{5, 1}, {5, 8}, {5, 2}, {4, 99}, {6, 8}})
    series.add(step, size);
  series.add(7, std::numeric_limits<double>::infinity());
  series.end();
  CHECK(series.steps() == 2);
  CHECK(series.largest_change().step == -1);
}

TEST_CASE("a series is dead if it ends with at least two steps of next to nothing") {
  CHECK(series_of({1, 1, 0, 0}).dead_since() == 2);
  CHECK(series_of({1, 1, 1e-7, 1e-8}).dead_since() == 2);
  CHECK(series_of({0, 0, 0}).dead_since() == 0);
  CHECK(series_of({1, 0, 0, 1}).dead_since() == -1);
  CHECK(series_of({1, 1, 0}).dead_since() == -1);
  CHECK(series_of({0}).dead_since() == -1);
}

TEST_CASE("growth compares the last three sizes with the first five") {
  CHECK(series_of({1, 1, 1, 1, 1, 50, 50, 50}).growth() == 50);
  CHECK(std::abs(series_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}).growth() - 3) < 1e-9);
  CHECK(series_of({1, 1, 1, 1000}).growth() == 1);
  CHECK(series_of({1, 20, 20, 20}).growth() == 20);
  CHECK(series_of({1, 20, 20}).growth() == 1);
  CHECK(series_of({0, 20, 20, 20}).growth() == 1);
}

}  // namespace
}  // namespace gradmon
