// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "control/agree/coordinator.h"
#include "tests/control/agree/small_job.h"
#include "tests/support/catch.h"
#include "tests/support/scale.h"

namespace gradmon {
namespace {

TEST_CASE("a job that starts on collects from step 1 if all ranks join in time") {
  SmallJob job(4);
  job.begin(job.plan(true, 3));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(1) && job.process(3).next > Step{10}; }));
  for (int rank = 0; rank < 4; ++rank) {
    REQUIRE(job.process(rank).collected == std::vector<std::int64_t>{1, 2, 3});
  }
  REQUIRE(job.log == std::vector<std::string>{"ON at step 1 (revision 1, file)"});
}

TEST_CASE("a job that starts on waits for a late rank and all ranks collect the same steps") {
  SmallJob job(3);
  job.process(2).trainer_stopped = true;
  job.begin(job.plan(true, 2));
  job.run_ticks(100);
  REQUIRE(job.process(0).next == Step{1});  // Rank 0 waits in front of the second step.
  REQUIRE_FALSE(job.tick_until([&] { return job.in_force_on_all(1); }, 80));
  REQUIRE(job.pending() == "waiting for rank 2 of 3 to create its Monitor");
  job.process(2).trainer_stopped = false;
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(1) && job.process(0).next > Step{20}; }));
  REQUIRE(job.divergence().empty());
  REQUIRE(job.process(0).collected == job.process(2).collected);
}

TEST_CASE("a job that starts off trains without waiting and its history is empty") {
  JobThatIsOff job(3, 100);
  for (const SmallJob::Process& own : job.processes()) {
    REQUIRE(own.longest_wait < Ticks{100});  // for the answer to Hello
    REQUIRE(own.warnings.empty());
  }
  REQUIRE(job.coordinator().status().reason == "never turned on");
  REQUIRE(job.history().empty());
}

TEST_CASE("different numbers of skipped updates are warned of once all ranks have passed those steps") {
  SmallJob job(3);
  job.begin(nullptr);
  const auto all_reported = [&](Step step) {
    return job.tick_until([&] {
      const auto ranks = job.coordinator().status().ranks;
      return std::all_of(ranks.begin(), ranks.end(),
                         [&](const RankStatus& rank) { return rank.step > step.value; });
    });
  };
  REQUIRE(all_reported(Step{20}));
  REQUIRE(job.coordinator().status().warnings.empty());
  for (const int rank : {0, 1, 2}) job.process(rank).skipped = {1, Step{15}};
  REQUIRE(all_reported(Step{200}));
  REQUIRE(job.coordinator().status().warnings.empty());
  // Rank 2 reports a skipped update in step 3000, before any rank has reported that step.
  job.process(2).skipped = {2, Step{3000}};
  REQUIRE(all_reported(Step{1000}));
  REQUIRE(job.coordinator().status().warnings.empty());
  REQUIRE(all_reported(Step{3500}));
  REQUIRE(job.coordinator().status().warnings ==
          std::vector<std::string>{"GradScaler skipped 1 updates on rank 1 and 2 on rank 2: their "
                                   "parameters differ"});
}

TEST_CASE("the end of a plan is written back once all ranks have finished, even if it collects nothing") {
  const std::int64_t times = GENERATE(2, 0);
  JobThatIsOff job(2, 10);
  job.propose(job.plan(true, times));
  REQUIRE(job.tick_until([&] { return !job.write_backs.empty(); }));
  REQUIRE(job.write_backs.front().revision == Revision{1});
  REQUIRE(job.coordinator().newest_is_off());
  REQUIRE(job.history().front().verdict == "commit");
  REQUIRE(job.process(0).collected.size() == static_cast<std::size_t>(times));
  if (times == 0) return;
  REQUIRE(job.tick_until([&] { return job.coordinator().status().reason == "finished"; }));
  REQUIRE(job.history().front().finished_step == job.process(0).collected.back());
  // A write-back that is tried again adds nothing to the log.
  const std::size_t logged = job.decisions.entries.size();
  for (int i = 0; i < 3; ++i) job.coordinator().write_back_ended(Revision{1});
  REQUIRE(job.decisions.entries.size() == logged);
}

TEST_CASE("of several changes that arrive while one is open only the newest is committed") {
  SmallJob job(2, {0, 0, 20, 1});
  job.train_off(10);
  job.propose(job.plan(true, 5));
  job.propose(job.plan(true, 6));
  job.propose(job.plan(false));
  REQUIRE(job.tick_until([&] { return job.committed(3) && job.in_force_on_all(3); }));
  const auto entries = job.history();
  REQUIRE(entries.size() == 3);
  REQUIRE(entries[0].reason == "superseded by a newer change (test)");
  REQUIRE(entries[1].verdict == "abort");
  REQUIRE(entries[2].verdict == "commit");
  REQUIRE(job.divergence().empty());
}

TEST_CASE("a plan that one rank cannot carry out is rejected on all ranks and no rank waits for it") {
  SmallJob job(3);
  job.reject_on(2, "no such format");
  job.train_off(10);
  job.propose(job.plan(true));
  REQUIRE(job.tick_until([&] { return job.history().front().final; }));
  REQUIRE(job.history().front().reason == "rejected by rank 2: no such format");
  for (const Envelope& envelope : job.sent) REQUIRE_FALSE(std::holds_alternative<Prepare>(envelope.message));
  REQUIRE(job.process(0).longest_wait == Ticks{});
  job.propose(job.plan(false));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
}

TEST_CASE(
    "a plan that matches on no rank is rejected with its patterns, and one that matches on one is not") {
  SmallJob job(2);
  std::int64_t matches = 0;
  job.can_carry_out = [&](int rank, const Plan&) -> tl::expected<std::int64_t, std::string> {
    return rank == 1 ? matches : 0;
  };
  job.list_targets = [](int rank, const Plan* asked) {
    TargetList list;
    if (rank == 1 && asked != nullptr) list.unmatched = {{"blok", {"blocks", "lock"}, ""}, {"(", {}, "bad"}};
    return list;
  };
  job.train_off(10);
  job.propose(job.plan(true));
  REQUIRE(job.tick_until([&] { return job.history().front().final; }));
  REQUIRE(job.coordinator().status().reason ==
          "no target matches on any rank: \"blok\" matches nothing (nearest: blocks, lock); "
          "\"(\" matches nothing: bad");
  matches = 1;
  job.propose(job.plan(true));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
}

TEST_CASE("a rank that has left counts as ready and finished") {
  JobThatIsOff job(3, 10);
  job.leave(1);
  job.propose(job.plan(true, 2));
  REQUIRE(job.tick_until([&] { return !job.write_backs.empty(); }));
  REQUIRE(job.process(1).member->left_acknowledged());
  REQUIRE(job.divergence().empty());
}

TEST_CASE("nothing is written back if training ends before the plan") {
  JobThatIsOff job(2, 10);
  job.propose(job.plan(true, 100'000'000));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(1); }));
  job.leave(0);
  job.leave(1);
  REQUIRE_FALSE(job.tick_until([&] { return !job.write_backs.empty(); }, 3000));
  REQUIRE(job.history().front().finished_step == -1);
}

TEST_CASE("a change waits for ranks that have never joined and names them") {
  SmallJob job(3);
  job.process(1).trainer_stopped = job.process(2).trainer_stopped = true;
  job.begin(nullptr);
  REQUIRE(job.tick_until([&] { return job.process(0).next > Step{10}; }));
  job.propose(job.plan(true));
  job.run_ticks(6'000);  // Longer than a silent member is kept.
  REQUIRE(job.pending() == "waiting for ranks 1, 2 of 3 to create their Monitor");
  REQUIRE(job.process(0).longest_wait == Ticks{});
  job.process(1).trainer_stopped = job.process(2).trainer_stopped = false;
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(1); }, 10'000));
}

TEST_CASE("a switch that waits for a rank whose steps do not end names the rank, and after 60 s the remedy") {
  JobThatIsOff job(3, 20);
  job.process(2).trainer_stopped = true;
  job.propose(job.plan(true));
  REQUIRE(job.tick_until([&] { return job.process(0).revision == 1; }));
  job.run_ticks(5'500);
  REQUIRE(job.pending().rfind("rank 2 has not stepped for 5", 0) == 0);
  job.run_ticks(700);
  REQUIRE(job.pending().rfind("rank 2: no step has ended for 6", 0) == 0);
  REQUIRE(job.pending().find(" s; if training runs, its step is captured: call monitor.step()") !=
          std::string::npos);
  job.process(2).trainer_stopped = false;
  REQUIRE(job.tick_until([&] { return job.pending().empty(); }));
}

TEST_CASE("a change is not offered while a rank is silent and its reason names the rank") {
  JobThatIsOff job(3, 200);
  job.process(2).partitioned = true;
  job.run_ticks(400);
  job.propose(job.plan(true));
  job.run_ticks(300);
  REQUIRE(job.pending().rfind("waiting for rank 2 (not heard for ", 0) == 0);
  REQUIRE(job.history().size() == 1);
  REQUIRE(job.process(0).longest_wait == Ticks{});
  job.process(2).partitioned = false;
  REQUIRE(job.tick_until([&] { return job.committed(1); }, 110));
}

TEST_CASE("a change is aborted if a rank falls silent after Prepare and retried once the rank is heard") {
  JobThatIsOff job(3, 200);
  job.should_lose = [](bool up, const Envelope& one) {
    return up && one.rank == Rank{2} && std::holds_alternative<Ready>(one.message);
  };
  job.propose(job.plan(true));
  REQUIRE(job.tick_until([&] { return job.history().size() == 2; }, 150));
  REQUIRE(job.history().front().reason == "rank 2 did not answer");
  REQUIRE(job.process(0).longest_wait <= Ticks{1'100});
  job.should_lose = nullptr;
  REQUIRE(job.tick_until([&] { return job.committed(2); }, 110));
  REQUIRE(job.last_entry().cause == "retry");
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  REQUIRE(job.divergence().empty());
}

TEST_CASE("a rank whose process dies is dropped at once and the next change is decided without it") {
  JobThatIsOff job(3, 200);
  job.kill(1);
  job.run_ticks(2);
  REQUIRE(job.coordinator().status().ranks[1].state == "dropped");
  job.propose(job.plan(true));
  REQUIRE(job.tick_until([&] { return job.committed(1) && job.in_force_on_all(1); }, 20));
}

TEST_CASE("a change that waits for a rank's answer is decided as soon as that rank's process dies") {
  JobThatIsOff job(3, 200);
  job.process(1).agent_stopped = true;
  job.propose(job.plan(true));
  job.run_ticks(150);
  REQUIRE_FALSE(job.committed(1));
  job.kill(1);
  REQUIRE(job.tick_until([&] { return job.last_entry().verdict == "commit"; }, 50));
}

TEST_CASE("a silent rank is dropped after 15 s and the waiting change is decided without it") {
  JobThatIsOff job(3, 200);
  job.process(1).partitioned = true;
  job.run_ticks(300);
  job.propose(job.plan(true, 1'000'000));
  REQUIRE_FALSE(job.tick_until([&] { return job.committed(1); }, 1'000));
  REQUIRE(job.tick_until([&] { return job.committed(1); }, 400));
  REQUIRE(job.coordinator().status().ranks[1].error.rfind("silent, last heard 15 s earlier", 0) == 0);
  REQUIRE(job.tick_until([&] { return job.process(0).revision == 1 && job.process(2).revision == 1; }, 100));
  // Once it is heard again, a resync gives it the plan.
  job.process(1).partitioned = false;
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  REQUIRE(job.last_entry().cause == "resync");
  REQUIRE(job.counted_divergence().empty());
}

TEST_CASE("a change takes effect at the next step if deciding takes at most a fifth of a step") {
  SmallJob job(2);
  job.begin(nullptr);
  for (int rank : {0, 1}) job.process(rank).step_ms = 1'000;
  const auto tick_with_slow_steps = [&](const std::function<bool()>& condition) {
    return job.tick_until([&] {
      for (int rank : {0, 1}) job.process(rank).trainer_stopped = job.now().count() % 1'000 != 0;
      return condition();
    });
  };
  REQUIRE(tick_with_slow_steps([&] { return job.all_past(3); }));
  for (std::uint64_t revision = 1; revision <= 3; ++revision) {
    const Step edited = job.process(0).gate->current();
    job.propose(job.plan(true, 1));
    REQUIRE(tick_with_slow_steps([&] { return job.committed(revision) && job.all_past(edited.value + 3); }));
    REQUIRE(job.process(0).collected.size() == revision);
    REQUIRE(job.process(0).collected.back() == edited.value + 1);
  }
}

TEST_CASE("a change by gradmon never replaces a waiting change by the user") {
  JobThatIsOff job(2, 200);
  job.process(1).partitioned = true;
  job.run_ticks(300);
  job.propose(job.plan(true, 7));
  auto own = std::make_shared<Plan>(*job.plan(true, 1));
  own->cause = Cause::alert;
  job.propose(own);
  job.process(1).partitioned = false;
  REQUIRE(job.tick_until([&] { return job.committed(1) && job.in_force_on_all(1) && job.all_past(1'000); }));
  REQUIRE(job.process(0).collected.size() == 7);
  REQUIRE(job.history().size() == 2);
}

TEST_CASE("a waiting or open change can be cancelled and is not retried") {
  JobThatIsOff job(2, 200);
  REQUIRE_FALSE(job.cancel());
  std::string verdict;
  SECTION("waiting for a silent rank") {
    job.process(1).partitioned = true;
    job.run_ticks(300);
    verdict = "withdrawn";
  }
  SECTION("open") {
    job.process(1).agent_stopped = true;
    verdict = "abort";
  }
  job.propose(job.plan(true));
  job.run_ticks(10);
  REQUIRE(job.cancel());
  REQUIRE(job.last_entry().verdict == verdict);
  REQUIRE(job.last_entry().reason == "withdrawn by somebody");
  REQUIRE(job.last_entry().final);
  job.process(1).partitioned = job.process(1).agent_stopped = false;
  job.run_ticks(1'000);
  REQUIRE(job.process(0).revision == 0);
  REQUIRE(job.history().size() == 1);
}

TEST_CASE("answers to an earlier revision and messages of another epoch or process change nothing") {
  SmallJob job(2);
  job.train_off(50);
  Envelope of_one;  // the newest message of rank 1
  bool answers = false;
  Revision lost;  // the newest revision whose Ready of rank 1 was lost
  const auto send = [&](Message message, const std::function<void(Envelope&)>& change = {}) {
    Envelope envelope = of_one;
    envelope.message = std::move(message);
    if (change) change(envelope);
    job.coordinator().on_message(envelope, WallTime{});
  };
  job.should_lose = [&](bool up, const Envelope& one) {
    if (!up || one.rank != Rank{1}) return false;
    of_one = one;
    const auto* ready = std::get_if<Ready>(&one.message);
    if (ready != nullptr && !answers) lost = ready->revision;
    return ready != nullptr && !answers;
  };
  const PlanPtr plan = job.plan(true);
  job.propose(plan);
  REQUIRE(job.tick_until([&] { return lost == Revision{2}; }));
  REQUIRE(job.history().front().verdict == "abort");
  send(Reject{Revision{1}, "not I"});
  send(Ready{Revision{1}, plan->config_sha256, Step{100'000}});
  send(Left{Step{5}}, [](Envelope& one) { one.epoch = "0123456789abcdef0123456789abcdef"; });
  send(Left{Step{5}}, [](Envelope& one) { one.incarnation += 1; });
  answers = true;
  REQUIRE(job.tick_until([&] { return job.last_entry().final; }, 500));
  CHECK(job.committed(2));
  CHECK(job.last_entry().effective_step < 100'000);
  send(Reject{Revision{2}, "too late"});
  job.run_ticks(10);
  CHECK(job.committed(2));
  CHECK(job.history().size() == 2);
  CHECK(job.coordinator().status().ranks[1].state != "left");
}

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
