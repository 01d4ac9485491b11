// SPDX-License-Identifier: Apache-2.0
// Real ranks behind bad links, stopped and killed: no step is ever run under
// two revisions, and who could not be reached says so.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>

#include "control/debian_version.h"
#include "tests/chaos/storm.h"
#include "tests/runtime/real_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// A rank that finds no verdict waits for all of fence_timeout + 2 s; the call
// updates the parameters besides, on a machine with more ranks than cores.
constexpr std::chrono::milliseconds kOptimizer{250};

// GRADMON_STORM_SEED begins at another seed, to see one storm again.
void weather(int world, int switches, unsigned seed) {
  constexpr int switches_a_job = 10;
  if (const char* other = std::getenv("GRADMON_STORM_SEED")) seed = static_cast<unsigned>(std::stoul(other));
  for (int done = 0; done < switches; ++seed) {
    Storm storm(world, seed);
    for (int i = 0; i < switches_a_job && done < switches; ++i, ++done) {
      const bool decided = storm.switch_once();
      CAPTURE(seed, done, storm.what());
      REQUIRE(decided);
    }
    const bool rested = storm.come_to_rest();
    const Evidence found = storm.evidence();
    CAPTURE(seed, storm.what(), found.breaches, found.slowest);
    CHECK(rested);
    CHECK(found.breaches.empty());
    CHECK(found.longest_call < std::chrono::duration<double>(Storm::kFenceTimeout + 2) + kOptimizer);
    std::cout << world << " ranks, seed " << seed << ": " << found.commits << " commits, " << found.aborts
              << " aborts, " << found.missed.size() << " missed, longest wait "
              << found.longest_call.count() / 1000 << " ms" << std::endl;
  }
}

TEST_CASE("2 ranks in a storm never run a step under two revisions") { weather(2, scaled(20, 700), 100); }
TEST_CASE("4 ranks in a storm never run a step under two revisions") { weather(4, scaled(20, 700), 200); }
TEST_CASE("8 ranks in a storm never run a step under two revisions") { weather(8, scaled(20, 600), 300); }

}  // namespace
}  // namespace gradmon
