// SPDX-License-Identifier: Apache-2.0
// Membership and leases, in a whole job.
#include "tests/control/agree/small_job.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

TEST_CASE("a rank without a lease collects nothing until it is heard again and resynced") {
  const bool cut_off = GENERATE(true, false);  // false: its agent hangs
  CollectingJob job(2);
  bool& trouble = cut_off ? job.process(1).partitioned : job.process(1).agent_stopped;
  trouble = true;
  job.run_ticks(1'010);
  REQUIRE(job.counted_in(100, 1) == 0);
  REQUIRE(job.process(0).revision == 1);
  trouble = false;
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  REQUIRE(job.last_entry().cause == "resync");
  REQUIRE(job.last_entry().by == "rank 1 has rejoined");
  REQUIRE(job.counted_divergence().empty());
}

TEST_CASE("a rank that joins while nothing is collected counts as off and no change is pending") {
  CollectingJob job(2, 5);
  const bool off = GENERATE(false, true);
  if (off) {
    job.propose(job.plan(false));
    REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  } else {
    REQUIRE(job.tick_until([&] { return job.write_backs.size() == 1; }));
  }
  job.restart(1, Step{100});
  job.run_ticks(100);
  REQUIRE(job.pending().empty());
  REQUIRE(job.coordinator().applied_by_all(Revision{off ? 2u : 1u}));
}

TEST_CASE("a second process with a rank's number is refused and the errors name both processes") {
  CollectingJob job(2);
  SmallJob::Process& second = job.start(1, Step{0});
  REQUIRE(job.tick_until([&] { return !second.warnings.empty(); }));
  REQUIRE(second.warnings.front() == "off: rank 1 already belongs to pid 102 on host");
  REQUIRE(job.coordinator().status().ranks[1].error == "pid 103 on host also claims this rank");
  job.run_ticks(2'000);
  REQUIRE(second.collected.empty());
  REQUIRE(job.processes()[1].revision == 1);
  // The error is cleared once the second process is gone.
  second.alive = false;
  job.run_ticks(400);
  REQUIRE(job.coordinator().status().ranks[1].error.empty());
}

TEST_CASE("status is on while the new process of rank 0 has not yet got the plan") {
  CollectingJob job(2);
  const SmallJob::Process& next = job.restart(0, Step{150});
  job.should_lose = [](bool up, const Envelope& one) {
    return up && std::holds_alternative<Offered>(one.message);
  };
  REQUIRE(job.tick_until([&] { return next.member->joined(); }));
  job.run_ticks(100);
  const Status status = job.coordinator().status();
  CHECK(status.state == "on");
  CHECK(status.revision == Revision{1});
  CHECK(status.reason.empty());
}

TEST_CASE("status shows a plan that only a dropped rank has applied") {
  CollectingJob job(2);
  job.process(1).trainer_stopped = true;
  job.propose(job.plan(true, 1'000'000));
  REQUIRE(job.tick_until([&] { return job.coordinator().status().revision == Revision{2}; }, 200));
  REQUIRE(job.process(1).revision == 1);
  job.kill(0);
  REQUIRE(job.tick_until([&] { return job.coordinator().status().ranks[0].state == "dropped"; }, 200));
  CHECK(job.coordinator().status().state == "on");
  CHECK(job.coordinator().status().revision == Revision{2});
}

TEST_CASE("an evicted rank stays evicted after the coordinator restarts") {
  CollectingJob job(3);
  job.evict(1);
  job.run_ticks(500);
  job.restart_coordinator(true);
  job.run_ticks(1'600);
  REQUIRE(job.coordinator().status().ranks[1].state == "dropped");
  REQUIRE(job.counted_in(500, 1) == 0);
  REQUIRE(job.process(0).revision == 1);
}

TEST_CASE("a rank that waits at its fence when the coordinator dies goes on after max_wait and is off") {
  SmallJob job(2, {0, 0, 9, 1});
  job.start_collecting();
  job.propose(job.plan(true, 5));
  REQUIRE(job.tick_until([&] { return job.process(1).waiting_since.has_value(); }, 100));
  job.kill_coordinator();
  REQUIRE(job.tick_until([&] { return !job.process(1).waiting_since; }, 250));
  REQUIRE(job.process(1).longest_wait <= Ticks{2'000});
  REQUIRE(job.process(1).revision == 0);
}

TEST_CASE("a change that waits to be retried says why the last attempt failed") {
  SmallJob job(2, {0, 0, 9, 1});
  job.start_collecting();
  const auto retried = [&] { return job.pending().rfind("waiting to be retried: ", 0) == 0; };
  for (int i = 0; i < 5 && !retried(); ++i) {
    job.propose(job.plan(true, 1'000'000));
    REQUIRE(job.tick_until([&] { return job.process(1).waiting_since.has_value() || retried(); }, 1'000));
    if (retried()) break;
    job.kill_coordinator();
    job.run_ticks(300);
    job.restart_coordinator(true);
    REQUIRE(job.tick_until([&] { return !job.coordinator().busy() || retried(); }, 1'000));
  }
  CHECK(retried());
  CHECK(job.pending().find("is busy: training has waited ") != std::string::npos);
}

TEST_CASE("a pause of the coordinator does not count as silence of its members") {
  CollectingJob job(2);
  job.coordinator_paused = true;
  job.run_ticks(3'000);
  job.coordinator_paused = false;
  job.run_ticks(5);
  REQUIRE(job.coordinator().status().ranks[1].state != "dropped");
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  REQUIRE(job.counted_divergence().empty());
}

TEST_CASE("a commit takes effect after the last step that a dropped rank reported") {
  CollectingJob job(3);
  // Rank 2 runs ahead of the others and dies.
  job.process(0).trainer_stopped = job.process(1).trainer_stopped = true;
  job.run_ticks(300);
  job.kill(2);
  const Step last_reported = *job.process(2).last_reported;
  REQUIRE(last_reported > job.process(0).next + 100);
  job.run_ticks(3);
  job.process(0).trainer_stopped = job.process(1).trainer_stopped = false;
  job.propose(job.plan(true, 1'000'000));
  REQUIRE(job.tick_until([&] { return job.committed(2); }));
  REQUIRE(job.last_entry().effective_step > last_reported.value);
}

}  // namespace
}  // namespace gradmon
