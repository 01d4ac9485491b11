// SPDX-License-Identifier: Apache-2.0
// Real ranks and hubs, stopped and killed: no step is ever collected under two
// revisions, and who could not be reached goes on off and says so.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>

#include "control/debian_version.h"
#include "tests/support/process_figures.h"
#include "tests/support/real_job.h"
#include "tests/whole/chaos/storm.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// The call updates the parameters besides, on a machine with more ranks than cores.
constexpr std::chrono::milliseconds kOptimizer{500};

// One hub a host, which speak with each other by TCP and nothing else.
bool hubs_are_apart(const MortalJob& job) {
  for (int host = 0; host < job.hosts(); ++host) {
    const auto hubs = job.hubs(host);
    if (hubs.size() != 1 || tcp_sockets_of(hubs.front(), TcpSockets::connected) == 0) return false;
  }
  return true;
}

// GRADMON_STORM_SEED begins at another seed, to see one storm again.
void weather(int world, int switches, unsigned seed, int hosts = 1) {
  constexpr int switches_a_job = 10;
  if (const char* other = std::getenv("GRADMON_STORM_SEED")) seed = static_cast<unsigned>(std::stoul(other));
  for (int done = 0; done < switches; ++seed) {
    Storm storm(world, seed, hosts);
    for (int i = 0; i < switches_a_job && done < switches; ++i, ++done) {
      const bool decided = storm.switch_once();
      CAPTURE(seed, done, storm.what());
      REQUIRE(decided);
    }
    const bool rested = storm.come_to_rest();
    const Evidence found = storm.evidence();
    if (hosts > 1) {
      const auto apart = [&] { return hubs_are_apart(storm.job()); };
      CAPTURE(storm.what());
      CHECK(eventually(apart, std::chrono::seconds(10)));
    }
    CAPTURE(seed, storm.what(), found.breaches, found.slowest);
    CHECK(rested);
    CHECK(found.breaches.empty());
    CHECK(found.longest_call < std::chrono::duration<double>(Storm::kMaxWait) + kOptimizer);
    std::cout << world << " ranks, seed " << seed << ": " << found.commits << " commits, " << found.aborts
              << " aborts, " << found.lapses.size() << " lapses, " << found.ahead_of_its_death
              << " steps ahead of a death, longest wait "
              << found.longest_call.count() / 1000 << " ms" << std::endl;
  }
}

TEST_CASE("2 ranks in a storm never collect a step under two revisions") { weather(2, scaled(20, 700), 100); }
TEST_CASE("4 ranks in a storm never collect a step under two revisions") { weather(4, scaled(20, 700), 200); }
TEST_CASE("8 ranks in a storm never collect a step under two revisions") { weather(8, scaled(20, 600), 300); }

TEST_CASE("8 ranks on two hosts in a storm never collect a step under two revisions") {
  if (const std::string why = HostNetwork::objection(); !why.empty()) {
    WARN(why);
    return;
  }
  weather(8, scaled(10, 500), 400, 2);
}

}  // namespace
}  // namespace gradmon
