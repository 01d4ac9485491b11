// SPDX-License-Identifier: Apache-2.0
// Real ranks and hubs are stopped and killed at random. No step may be collected
// under two revisions. A rank that could not be reached must go off, and note that.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>

#include "control/debian_version.h"
#include "tests/support/process_figures.h"
#include "tests/support/real_job.h"
#include "tests/support/scale.h"
#include "tests/whole/chaos/random_faults.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// Monitor::step() also runs the optimizer, on a machine with more ranks than cores.
constexpr std::chrono::milliseconds kOptimizerTime{500};

// Whether each host runs exactly one hub, and that hub has an open TCP connection.
bool hubs_are_apart(const KillableJob& job) {
  for (int host = 0; host < job.hosts(); ++host) {
    const auto hubs = job.hubs(host);
    if (hubs.size() != 1 || tcp_sockets_of(hubs.front(), TcpSockets::connected) == 0) return false;
  }
  return true;
}

// Makes `changes` changes of plan, ten in each job, each job with the next seed.
// GRADMON_CHAOS_SEED replaces the first seed, to repeat the faults of a job.
void run_random_faults(int world, int changes, unsigned seed, int hosts = 1) {
  constexpr int kChangesPerJob = 10;
  if (const char* other = std::getenv("GRADMON_CHAOS_SEED")) seed = static_cast<unsigned>(std::stoul(other));
  for (int done = 0; done < changes; ++seed) {
    RandomFaults faults(world, seed, hosts);
    for (int i = 0; i < kChangesPerJob && done < changes; ++i, ++done) {
      const bool decided = faults.change_plan_under_fault();
      CAPTURE(seed, done, faults.event_log());
      REQUIRE(decided);
    }
    const bool finished = faults.run_last_plan();
    const Audit found = faults.audit();
    if (hosts > 1) {
      const auto apart = [&] { return hubs_are_apart(faults.job()); };
      CAPTURE(faults.event_log());
      CHECK(eventually(apart, std::chrono::seconds(10)));
    }
    CAPTURE(seed, faults.event_log(), found.violations, found.slowest);
    CHECK(finished);
    CHECK(found.violations.empty());
    CHECK(found.longest_call < std::chrono::duration<double>(RandomFaults::kMaxWait) + kOptimizerTime);
    std::cout << world << " ranks, seed " << seed << ": " << found.commits << " commits, " << found.aborts
              << " aborts, " << found.lapses.size() << " lapses, " << found.stale_steps_before_kill
              << " stale steps before a kill, longest wait " << found.longest_call.count() / 1000 << " ms"
              << std::endl;
  }
}

TEST_CASE("2 ranks under random faults never collect a step under two revisions") {
  run_random_faults(2, scaled(20, 700), 100);
}

TEST_CASE("4 ranks under random faults never collect a step under two revisions") {
  run_random_faults(4, scaled(20, 700), 200);
}

TEST_CASE("8 ranks under random faults never collect a step under two revisions") {
  run_random_faults(8, scaled(20, 600), 300);
}

TEST_CASE("8 ranks on two hosts under random faults never collect a step under two revisions") {
  if (const std::string why = HostNetwork::why_unavailable(); !why.empty()) {
    WARN("skipped: " << why);
    return;
  }
  run_random_faults(8, scaled(10, 500), 400, 2);
}

}  // namespace
}  // namespace gradmon
