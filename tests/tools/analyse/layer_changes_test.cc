// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/layer_changes.h"

#include <cmath>
#include <limits>
#include <vector>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/analyse/rank_writer.h"
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

TEST_CASE("a planted spike and a dead and an exploding layer are found on their rank") {
  const TemporaryDirectory output;
  for (int rank = 0; rank < 2; ++rank) {
    RankWriter writer(output.path(), rank);
    for (int step = 0; step < 12; ++step) {
      const bool second = rank == 1;
      writer.write(step, {{Kind::grad_unreduced, "calm", 1 + 0.1 * step},
                          {Kind::grad_reduced, "calm", 1 + 0.1 * step},
                          {Kind::grad_reduced, "spike", second && step == 6 ? 4096.0 : 1},
                          {Kind::grad_reduced, "dead", step >= 8 ? 0.0 : 1},
                          {Kind::grad_reduced, "exploding", second ? std::pow(1.5, step) : 1}});
    }
  }
  Problems problems;
  const LayerChanges changes = find_layer_changes(*find_run(output.path(), "", problems), problems);
  CHECK(problems.count() == 0);
  CHECK(changes.not_finite.extent.rows == 2 * 12 * 5);
  CHECK(changes.layers == 4);

  REQUIRE(changes.largest.size() == 4);
  CHECK(changes.largest[0].layer == "dead");
  CHECK(changes.largest[1].layer == "spike");
  CHECK(changes.largest[1].rank == 1);
  CHECK(changes.largest[1].change.step == 6);
  CHECK(changes.largest[1].change.factor == 4096);
  CHECK(changes.largest[3].layer == "calm");

  REQUIRE(changes.dead.size() == 1);
  CHECK(changes.dead[0].layer == "dead");
  CHECK(changes.dead[0].since == 8);
  CHECK(changes.dead[0].ranks == 2);

  REQUIRE(changes.exploding.size() == 1);
  CHECK(changes.exploding[0].layer == "exploding");
  CHECK(changes.exploding[0].rank == 1);
}

}  // namespace

}  // namespace gradmon
