// SPDX-License-Identifier: Apache-2.0
// A capture: the richer plan that an alert starts, and the return to the plan before it.
#include "control/agree/coordinator.h"
#include "tests/control/agree/small_job.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

constexpr std::int64_t kTimes = 3;

std::shared_ptr<Plan> richer() {
  auto plan = std::make_shared<Plan>();
  plan->config_text = "richer";
  plan->config_sha256 = "richer";
  plan->collect_times = kTimes;
  plan->by = "an alert";
  return plan;
}

void capture(SmallJob& job) {
  REQUIRE(job.coordinator().may_capture());
  job.capture(richer());
}

TEST_CASE("a capture is not put off until its alert is old") {
  CollectingJob job(2);
  job.should_lose = [](bool up, const Envelope& envelope) {
    return up && envelope.rank == Rank{1} && std::holds_alternative<Ready>(envelope.message);
  };
  capture(job);
  REQUIRE(job.tick_until([&] { return job.coordinator().may_capture(); }));
  CHECK(job.history().size() == 4);  // the plan, and three attempts
  CHECK(job.last_entry().verdict == "abort");
  CHECK(job.last_entry().final);
  job.run_ticks(2'000);
  CHECK(job.history().size() == 4);
  CHECK(job.coordinator().status().reason.empty());
}

TEST_CASE("nothing is captured while a change is open, off, or before the first plan") {
  SmallJob job(2);
  job.begin(job.plan(false));
  CHECK_FALSE(job.coordinator().may_capture());
  job.propose(job.plan(true, 1'000'000));
  CHECK_FALSE(job.coordinator().may_capture());
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(1); }));
  CHECK(job.coordinator().may_capture());
  job.propose(job.plan(false));
  CHECK_FALSE(job.coordinator().may_capture());
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  CHECK_FALSE(job.coordinator().may_capture());
}

TEST_CASE("a change of the user's ends a capture, and nothing is returned to") {
  const bool on = GENERATE(true, false);
  CollectingJob job(2);
  capture(job);
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  job.propose(job.plan(on, 1'000'000, 2));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(3); }));
  job.run_ticks(500);
  CHECK(job.history().size() == 3);
  CHECK(job.in_force_on_all(3));
}

TEST_CASE("a capture that a rank rejects changes nothing") {
  CollectingJob job(2);
  job.can_carry_out = [](int rank, const Plan& plan) -> tl::expected<std::int64_t, std::string> {
    if (rank == 1 && plan.config_text == "richer") return tl::unexpected(std::string("no"));
    return 1;
  };
  capture(job);
  REQUIRE(job.tick_until([&] { return job.last_entry().final; }));
  CHECK(job.last_entry().verdict == "abort");
  CHECK(job.in_force_on_all(1));
  CHECK(job.coordinator().status().state == "on");
  CHECK(job.coordinator().status().reason.empty());
}

TEST_CASE("a return that cannot be carried out is proposed once") {
  CollectingJob job(1);
  capture(job);
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  job.reject_on(0, "no");
  REQUIRE(job.tick_until([&] { return job.last_entry().verdict == "abort"; }));
  job.run_ticks(500);
  CHECK(job.history().size() == 3);
  CHECK(job.coordinator().status().reason == "rejected by rank 0: no");
}

TEST_CASE("what a schedule has left does not depend on when it is collected") {
  const Schedule schedule(Step{10}, 5, 7);
  const Schedule left = left_at(schedule, Step{21});
  CHECK((left.times() == 4 && left.interval() == 5));
  CHECK(left_at(left, Step{1'000'000}).times() == 4);
  CHECK(left_at(schedule, Step{5}).times() == 7);
  CHECK(left_at(schedule, Step{1'000}).times() == 0);
}

}  // namespace
}  // namespace gradmon
