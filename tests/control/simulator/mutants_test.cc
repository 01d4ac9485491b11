// SPDX-License-Identifier: Apache-2.0
// Tests the simulator itself: within a few seeds it catches each mutant of
// all_mutants(), and without a mutant it finds no failure in these seeds.
#include "tests/control/simulator/mutant_names.h"
#include "tests/control/simulator/script.h"
#include "tests/control/simulator/simulation.h"
#include "tests/support/catch.h"
#include "tests/support/scale.h"

namespace gradmon {
namespace {

const std::uint64_t kSeeds = scaled<std::uint64_t>(200, 1000);  // The last mutant is caught by seed 56.

struct ActiveMutant {
  explicit ActiveMutant(Mutant mutant) { chosen_mutant = mutant; }
  ~ActiveMutant() { chosen_mutant = Mutant::none; }
  ActiveMutant(const ActiveMutant&) = delete;
  ActiveMutant& operator=(const ActiveMutant&) = delete;
};

// The first seed whose history fails; 0: none.
std::uint64_t first_failing_seed(Mutant mutant) {
  const ActiveMutant active(mutant);
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    if (!simulate(script_of(seed)).failure.empty()) return seed;
  }
  return 0;
}

TEST_CASE("without a mutant the same seeds find no failure") {
  REQUIRE(first_failing_seed(Mutant::none) == 0);
}

TEST_CASE("each mutant of mutant_names.cc is caught") {
  for (const NamedMutant& one : all_mutants()) {
    CAPTURE(one.name);
    const std::uint64_t seed = first_failing_seed(one.mutant);
    INFO("first caught by seed " << seed);
    CHECK(seed != 0);
  }
}

}  // namespace
}  // namespace gradmon
