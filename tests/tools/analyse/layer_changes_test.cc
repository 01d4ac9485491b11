// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/layer_changes.h"

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/analyse/rank_writer.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

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
