// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/control/simulator/script.h"
#include "tests/control/simulator/simulation.h"
#include "tests/support/catch.h"
#include "tests/support/scale.h"

namespace gradmon {
namespace {

TEST_CASE("every plan comes into force at one step on all ranks whatever fails") {
  const auto switches = scaled<std::uint64_t>(20'000, 100'000);
  std::uint64_t done = 0;
  std::uint64_t budgets = 0;
  std::uint64_t captures = 0;
  std::uint64_t returns = 0;
  for (std::uint64_t seed = 1; done < switches && seed <= switches; ++seed) {
    const Outcome outcome = simulate(script_of(seed));
    CAPTURE(seed, outcome.failure);
    REQUIRE(outcome.failure.empty());
    done += outcome.switches;
    budgets += outcome.budgets;
    captures += outcome.captures;
    returns += outcome.returns;
  }
  REQUIRE(done >= switches);
  REQUIRE(budgets > switches / 500);
  REQUIRE(captures > switches / 100);
  REQUIRE(returns > switches / 400);
}

TEST_CASE("the same seed gives the same history to the last message") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const Script script = script_of(seed);
    const Outcome first = simulate(script);
    const Outcome second = simulate(script);
    CAPTURE(seed);
    REQUIRE(first.digest == second.digest);
    REQUIRE(first.messages == second.messages);
    REQUIRE(simulate(script_of(seed + 1)).digest != first.digest);
  }
}

TEST_CASE("a script that is written and read back is unchanged") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Script script = script_of(seed);
    const std::string text = to_text(script);
    const auto read = script_from_text(text);
    CAPTURE(seed, text);
    REQUIRE(read);
    REQUIRE(to_text(*read) == text);
  }
}

TEST_CASE("no script of tests/control/seeds goes wrong again") {
  int replayed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GRADMON_SEEDS)) {
    std::ifstream file(entry.path());
    const auto script = script_from_text({std::istreambuf_iterator<char>(file), {}});
    CAPTURE(entry.path().string());
    REQUIRE(script);
    const Outcome outcome = simulate(*script);
    CAPTURE(outcome.failure);
    CHECK(outcome.failure.empty());
    replayed += 1;
  }
  REQUIRE(replayed > 0);
}

}  // namespace
}  // namespace gradmon
