// SPDX-License-Identifier: Apache-2.0
// The simulator is worth as much as what it catches: each fault of mutant.h, by
// name, within a thousand seeds in which the real thing does no wrong.
#include "control/debian_version.h"
#include "tests/control/simulator/mutant_names.h"
#include "tests/control/simulator/script_generator.h"
#include "tests/control/simulator/simulation.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr std::uint64_t kSeeds = 1000;

struct Chosen {
  explicit Chosen(Mutant mutant) { chosen_mutant = mutant; }
  ~Chosen() { chosen_mutant = Mutant::none; }
  Chosen(const Chosen&) = delete;
  Chosen& operator=(const Chosen&) = delete;
};

// The first seed in which something goes wrong; 0: none.
std::uint64_t first_caught(Mutant mutant) {
  const Chosen chosen(mutant);
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    if (!simulate(script_of(seed)).wrong.empty()) return seed;
  }
  return 0;
}

TEST_CASE("nothing goes wrong in the seeds that catch mutants") { REQUIRE(first_caught(Mutant::none) == 0); }

TEST_CASE("each fault of mutant.h is caught") {
  for (const NamedMutant& one : all_mutants()) {
    CAPTURE(one.name);
    const std::uint64_t seed = first_caught(one.mutant);
    INFO("first caught by seed " << seed);
    CHECK(seed != 0);
  }
}

}  // namespace
}  // namespace gradmon
