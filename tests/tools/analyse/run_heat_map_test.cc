// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/run_heat_map.h"

#include <cmath>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/analyse/rank_writer.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

HeatMap map_of(const TemporaryDirectory& output, const HeatMapRequest& request) {
  Problems problems;
  const auto map = heat_map_of(*find_run(output.path(), "", problems), request, problems);
  REQUIRE(map);
  return *map;
}

TEST_CASE("a heat map has a row for each layer and the largest value of all ranks") {
  const TemporaryDirectory output;
  for (int rank = 0; rank < 2; ++rank) {
    RankWriter writer(output.path(), rank);
    for (int step = 10; step < 13; ++step)
      writer.write(step, {{Kind::grad_reduced, "a", 1.0 + rank},
                          {Kind::grad_reduced, "b", rank == 1 && step == 11 ? std::nan("") : 5}});
  }
  const HeatMap map = map_of(output, {});
  CHECK(map.title == "norm of grad_reduced, largest of 2 ranks, run 1a2b3c4d");
  CHECK(map.rows == std::vector<std::string>{"a", "b"});
  CHECK(map.first_steps == std::vector<std::int64_t>{10, 11, 12});
  CHECK(map.cell(0, 0) == 2);
  CHECK(std::isnan(map.cell(1, 1)));
  HeatMapRequest one;
  one.rank = 0;
  one.target = "b";
  CHECK(map_of(output, one).cells == std::vector<float>{5, 5, 5});
}

TEST_CASE("a target is a name or a module above it or a pattern") {
  CHECK(is_target("layers.1", "layers.1"));
  CHECK(is_target("layers.1", "layers.1.weight"));
  CHECK(!is_target("layers.1", "layers.10.weight"));
  CHECK(is_target("*.weight", "layers.10.weight"));
  CHECK(is_target("layers.?.w*t", "layers.1.weight"));
  CHECK(!is_target("layers.?.weight", "layers.10.weight"));
  CHECK(is_target("*a*b*", "xaxxb"));
  CHECK(!is_target("*a*b", "xaxxbc"));
  CHECK(is_target("*", ""));
  CHECK(!is_target("?", ""));
}

}  // namespace
}  // namespace gradmon
