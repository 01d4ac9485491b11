// SPDX-License-Identifier: Apache-2.0
// A capture: the richer plan that an alert starts, and the return to the plan before it.
#include "control/agree/coordinator.h"
#include "control/debian_version.h"
#include "tests/control/agree/small_job.h"
#include GRADMON_CATCH_HEADER

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

// The number of collected steps of a process under a revision.
std::int64_t collected_under(const SmallJob::Process& process, std::uint64_t revision) {
  std::int64_t count = 0;
  for (const auto& [step, of] : process.revision_of_counted) count += of == revision ? 1 : 0;
  return count;
}

TEST_CASE("a capture collects its steps on all ranks, and then the plan before it goes on") {
  SmallJob job(3, {0.05, 0.05, 3, 7});
  job.start_collecting(400);
  capture(job);
  CHECK_FALSE(job.coordinator().may_capture());
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  CHECK(job.coordinator().status().reason == "capturing after an alert");
  CHECK(job.coordinator().committed_plan()->config_text == "richer");
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(3); }));
  CHECK(job.coordinator().may_capture());
  CHECK(job.write_backs.empty());
  REQUIRE(job.tick_until([&] { return !job.write_backs.empty(); }));
  CHECK(job.write_backs[0].revision == Revision{3});
  CHECK(job.divergence() == "");
  const auto& first = job.process(0).revision_of_counted;
  for (int rank = 0; rank < 3; ++rank) {
    const SmallJob::Process& process = job.process(rank);
    CHECK(process.revision_of_counted == first);
    CHECK(collected_under(process, 2) == kTimes);
    CHECK(collected_under(process, 1) + collected_under(process, 3) == 400);
  }
  const auto entries = job.history();
  REQUIRE(entries.size() == 3);
  CHECK((entries[1].cause == "alert" && entries[1].by == "an alert"));
  CHECK((entries[2].cause == "alert" && entries[2].by == "the end of the capture"));
}

TEST_CASE("a capture is not put off until its alert is old") {
  SmallJob job(2);
  job.start_collecting();
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
  SmallJob job(2);
  job.start_collecting();
  capture(job);
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  job.propose(job.plan(on, 1'000'000, 2));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(3); }));
  job.run_ticks(500);
  CHECK(job.history().size() == 3);
  CHECK(job.in_force_on_all(3));
}

TEST_CASE("a capture that a rank rejects changes nothing") {
  SmallJob job(2);
  job.start_collecting();
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

TEST_CASE("a hub that dies during a capture returns from it, with its log and without") {
  const bool with_log = GENERATE(true, false);
  SmallJob job(2);
  job.start_collecting(3'000);
  const PlanPtr from_file = job.coordinator().committed_plan();
  auto longer = richer();
  longer->collect_times = 100;
  job.capture(longer);
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  job.kill_coordinator();
  job.run_ticks(20);
  job.restart_coordinator(with_log, from_file);
  REQUIRE(job.tick_until(
      [&] {
        const PlanPtr plan = job.coordinator().committed_plan();
        return plan && !plan->returns_to && job.coordinator().status().state == "on" &&
               !job.coordinator().pending();
      },
      20'000));
  CHECK(job.coordinator().committed_plan()->config_text == from_file->config_text);
  REQUIRE(job.tick_until([&] { return !job.write_backs.empty(); }, 20'000));
  CHECK(job.counted_divergence() == "");
  if (!with_log) return;
  std::int64_t captured = 0;
  for (const auto& [step, revision] : job.process(0).revision_of_counted) captured += revision == 2 ? 1 : 0;
  CHECK(captured == 100);
  CHECK(static_cast<std::int64_t>(job.process(0).collected.size()) == 3'100);
}

TEST_CASE("a return that cannot be carried out is proposed once") {
  SmallJob job(1);
  job.start_collecting();
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
