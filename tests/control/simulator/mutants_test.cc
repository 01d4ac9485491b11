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

TEST_CASE("effective at the least of the fences is caught") {
  REQUIRE(first_caught(Mutant::least_fence) != 0);
}

TEST_CASE("an unheard rank that aborts alone is caught") { REQUIRE(first_caught(Mutant::no_register) != 0); }

TEST_CASE("a Ready without a fence is caught") { REQUIRE(first_caught(Mutant::ready_without_fence) != 0); }

TEST_CASE("a second look left out is caught") { REQUIRE(first_caught(Mutant::no_second_look) != 0); }

TEST_CASE("a rank that comes back and forgets is caught") {
  REQUIRE(first_caught(Mutant::forgets_on_return) != 0);
}

TEST_CASE("a rank that comes back and leaves open what is open is caught") {
  REQUIRE(first_caught(Mutant::leaves_open_on_return) != 0);
}

TEST_CASE("a busy rank that takes a second proposal is caught") {
  REQUIRE(first_caught(Mutant::takes_a_second) != 0);
}

TEST_CASE("a repeated question answered anew is caught") { REQUIRE(first_caught(Mutant::answers_anew) != 0); }

TEST_CASE("a verdict without its plan is caught") {
  REQUIRE(first_caught(Mutant::verdict_without_plan) != 0);
}

TEST_CASE("a silent rank that counts as gone is caught") {
  REQUIRE(first_caught(Mutant::silent_counts_as_gone) != 0);
}

TEST_CASE("one register for two epochs is caught") { REQUIRE(first_caught(Mutant::one_register) != 0); }

}  // namespace
}  // namespace gradmon
