// SPDX-License-Identifier: Apache-2.0
// The coordinator dies, and comes back with or without its log.
#include <algorithm>
#include <set>

#include "control/debian_version.h"
#include "tests/control/agree/small_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

void go_on(SmallJob& job, std::int64_t times = 1'000'000) {
  job.begin(job.plan(true, times));
  REQUIRE(job.tick_until([&] { return job.all_run(1) && job.all_past(200); }));
}

TEST_CASE("a coordinator that starts again with its log disturbs nobody") {
  SmallJob job(3);
  go_on(job);
  job.kill_coordinator();
  job.run_ticks(100);
  job.restart_coordinator(true, nullptr);
  job.run_ticks(2'000);
  REQUIRE(job.all_run(1));
  REQUIRE(job.coordinator().status().state == "on");
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(job.process(rank).collected.size() > 2'100);
    REQUIRE(job.process(rank).longest_stand < Ticks{100});
  }
  job.propose(job.plan(true, 5));
  REQUIRE(job.tick_until([&] { return job.committed(2) && job.all_run(2); }));
  REQUIRE(job.counted_twice().empty());
}

TEST_CASE("what was open when the coordinator died is aborted and proposed again under another number") {
  SmallJob job(3);
  go_on(job);
  const bool promised = GENERATE(false, true);
  job.loses = [&](bool up, const Envelope& one) {
    return up && (promised ? std::holds_alternative<Ready>(one.message)
                           : std::holds_alternative<Offered>(one.message));
  };
  job.propose(job.plan(true, 5));
  job.run_ticks(10);
  job.kill_coordinator();
  job.loses = nullptr;
  job.run_ticks(10);
  job.restart_coordinator(true);
  REQUIRE(job.tick_until([&] { return job.committed(3) && job.all_run(3); }));
  REQUIRE(job.coordinator().journal().find(Revision{2})->reason == "the hub restarted");
  REQUIRE(job.process(0).collected.size() == job.process(2).collected.size());
  REQUIRE(job.counted_twice().empty());
}

TEST_CASE("no number means two plans") {
  for (int dies_at = 1; dies_at < 40; ++dies_at) {
    SmallJob job(2, {0, 0, 4, static_cast<std::uint64_t>(dies_at)});
    std::map<std::uint64_t, std::set<std::int64_t>> meant;
    go_on(job);
    job.propose(job.plan(true, 5));
    job.run_ticks(dies_at);
    job.kill_coordinator();
    job.run_ticks(5);
    job.restart_coordinator(true);
    job.propose(job.plan(true, 6));
    REQUIRE(
        job.tick_until([&] { return job.last_entry().verdict == "commit" && job.all_past(1'000); }, 2'000));
    for (const Envelope& told : job.told) {
      if (const auto* offer = std::get_if<Offer>(&told.message))
        meant[offer->revision.value].insert(offer->plan->collect_times);
    }
    for (const auto& [revision, plans] : meant) {
      CAPTURE(dies_at, revision);
      REQUIRE(plans.size() == 1);
    }
    REQUIRE(job.process(0).collected == job.process(1).collected);
  }
}

TEST_CASE("a verdict that cannot be logged is an abort and off is told all the same") {
  SmallJob job(2);
  go_on(job);
  job.propose(job.plan(true, 5));
  job.tick_until([&] { return std::holds_alternative<OfferedEntry>(job.decisions.entries.back()); });
  job.decisions.failing = true;
  REQUIRE(job.tick_until([&] { return job.coordinator().journal().find(Revision{2})->verdict == "abort"; }));
  REQUIRE(job.coordinator().journal().find(Revision{2})->reason ==
          "the verdict could not be written to the decision log");
  REQUIRE(job.all_run(1));
  job.propose(job.plan(false));
  REQUIRE(job.tick_until([&] { return job.last_entry().verdict == "commit"; }, 200));
  REQUIRE(job.tick_until([&] { return job.all_run(job.last_entry().revision.value); }, 100));
}

TEST_CASE("an off that was never logged holds when the coordinator starts again") {
  SmallJob job(3);
  go_on(job);
  job.decisions.failing = true;
  job.process(2).unheard = true;
  job.propose(job.plan(false));
  REQUIRE(job.tick_until([&] { return job.process(0).revision == 2 && job.process(1).revision == 2; }, 300));
  job.kill_coordinator();
  job.process(2).unheard = false;
  job.decisions.failing = false;
  job.run_ticks(10);
  job.restart_coordinator(true);
  REQUIRE(job.tick_until([&] { return job.process(2).revision == 2; }, 300));
  REQUIRE(job.coordinator().status().state == "off");
  job.propose(job.plan(true, 5));
  REQUIRE(job.tick_until([&] { return job.committed(3) && job.all_run(3); }, 500));
}

TEST_CASE("the number of an off that a rank told of is not given again after another restart") {
  SmallJob job(2);
  go_on(job);
  job.decisions.failing = true;
  job.propose(job.plan(false));
  REQUIRE(job.tick_until([&] { return job.all_run(2); }, 300));
  job.kill_coordinator();
  job.decisions.failing = false;
  job.restart_coordinator(true);
  REQUIRE(job.tick_until([&] { return !job.coordinator().committed_plan()->on; }, 300));
  job.restart_coordinator(true);
  job.propose(job.plan(false));
  CHECK(job.last_entry().revision == Revision{3});
}

TEST_CASE("an off that a rank tells of while a lower revision is open does not reopen what was decided") {
  SmallJob job(2);
  go_on(job);
  job.decisions.failing = true;
  for (std::uint64_t revision : {std::uint64_t{2}, std::uint64_t{3}}) {
    job.propose(job.plan(false));
    REQUIRE(job.tick_until([&] { return job.all_run(revision); }, 300));
  }
  job.kill_coordinator();
  job.decisions.failing = false;
  job.restart_coordinator(true);
  job.told.clear();
  job.propose(job.plan(false));
  REQUIRE(job.last_entry().revision == Revision{2});
  REQUIRE(job.tick_until([&] { return job.all_run(4); }, 500));
  for (const Envelope& told : job.told) {
    if (const auto* decided = std::get_if<Decided>(&told.message); decided != nullptr && decided->last.commit)
      CHECK(decided->last.closed >= decided->last.commit->revision);
  }
}

TEST_CASE("a verdict is restored to the revision that it decides") {
  SmallJob job(1);
  Verdict off;
  off.revision = Revision{7};
  off.plan = job.plan(false);
  Verdict aborted;
  aborted.revision = Revision{5};
  aborted.abort_reason = AbortReason::restarted;
  NullDecisionLog log;
  Coordinator coordinator({"epoch", "launch", 1, "run", 100}, log);
  coordinator.restore({OfferedEntry{Revision{5}, job.plan(true), 50}, off, aborted}, 100);
  coordinator.begin(nullptr, 100);
  REQUIRE(coordinator.journal().entries().size() == 1);
  CHECK(coordinator.journal().find(Revision{5})->verdict == "abort");
  Hello hello;
  hello.launch_id = "launch";
  hello.process_id = "rank";
  const auto actions = coordinator.on_message({"", Rank{0}, 0, hello}, 200);
  CHECK(std::get<Welcome>(actions.send.front().message).last.closed == Revision{7});
}

TEST_CASE("a full disk is warned of once while a change waits for it") {
  SmallJob job(2);
  go_on(job);
  job.decisions.failing = true;
  job.propose(job.plan(true, 5));
  job.run_ticks(1'000);
  CHECK(job.warnings == std::vector<std::string>{"decision log: no space left on device"});
  job.decisions.failing = false;
  CHECK(job.tick_until([&] { return job.committed(2); }, 300));
}

TEST_CASE("a rank that had joined but was not yet brought in is so after the coordinator's death") {
  SmallJob job(2);
  go_on(job);
  job.kill(1);
  job.run_ticks(3);
  SmallJob::Process& next = job.start(1, Step{0});
  job.loses = [&](bool up, const Envelope& one) {
    return up && std::holds_alternative<Offered>(one.message);
  };
  REQUIRE(job.tick_until([&] { return next.member->joined(); }));
  job.kill_coordinator();
  job.loses = nullptr;
  job.restart_coordinator(true);
  REQUIRE(job.tick_until([&] { return next.revision != 0 && job.all_run(next.revision); }, 1'000));
}

TEST_CASE("with the log lost what the ranks hold goes on with what it had left and numbers go on above") {
  SmallJob job(2);
  job.begin(nullptr);
  job.tick_until([&] { return job.all_past(100); });
  job.propose(job.plan(true, 1));
  job.tick_until([&] { return job.write_backs.size() == 1; });
  job.propose(job.plan(true, 1'000));
  REQUIRE(job.tick_until([&] { return job.all_run(2); }));
  const std::int64_t first = job.last_entry().effective_step;
  job.run_ticks(200);
  job.kill_coordinator();
  job.run_ticks(20);
  job.restart_coordinator(false);
  REQUIRE(job.tick_until([&] { return job.all_run(3); }, 1'000));
  REQUIRE(job.last_entry().cause == "resync");
  REQUIRE(job.tick_until([&] { return job.all_past(first + 1'500); }));
  for (int rank : {0, 1}) {
    REQUIRE(job.process(rank).collected.size() == 1'001);
    REQUIRE(job.process(rank).collected.back() == first + 999);
  }
  REQUIRE(job.counted_twice().empty());
}

TEST_CASE("an epoch is later than any that a rank tells of, where the clock was set back, and else what it is") {
  NullDecisionLog log;
  Coordinator coordinator({"new", "launch", 1, "run", 100}, log);
  coordinator.begin(nullptr, 100);
  const auto order_told = [&](std::int64_t earlier, std::uint64_t number) {
    Hello hello;
    hello.launch_id = "launch";
    hello.process_id = "rank";
    hello.number = number;
    hello.held_epoch = "earlier";
    hello.epoch_order = earlier;
    const auto actions = coordinator.on_message({"", Rank{0}, 0, hello}, 200);
    return std::get<Welcome>(actions.send.front().message).epoch_order;
  };
  CHECK(order_told(150, 1) == 100);  // That epoch is the newer one: its rank must not come.
  CHECK(order_told(5'000, 2) == 5'001);
  CHECK(order_told(4'000, 3) == 5'001);
}

TEST_CASE("with the log lost and none holding anything the epoch begins with the file") {
  SmallJob job(2);
  job.begin(nullptr);
  job.tick_until([&] { return job.all_past(100); });
  job.kill_coordinator();
  job.restart_coordinator(false, job.plan(true, 7));
  REQUIRE(job.tick_until([&] { return job.committed(1) && job.all_run(1) && job.all_past(1'000); }, 2'000));
  REQUIRE(job.process(0).collected.size() == 7);
}

TEST_CASE("with the log lost a newer save of the file wins over what the ranks hold") {
  SmallJob job(2);
  go_on(job);
  job.kill_coordinator();
  SECTION("on") {
    job.restart_coordinator(false, job.plan(true, 7));
    REQUIRE(job.tick_until([&] { return job.process(0).revision > 1 && job.all_past(3'000); }, 4'000));
    REQUIRE(job.coordinator().committed_plan()->collect_times == 7);
  }
  SECTION("off") {
    job.restart_coordinator(false, job.plan(false));
    REQUIRE(job.tick_until([&] { return job.coordinator().committed_plan() != nullptr; }, 1'000));
    REQUIRE_FALSE(job.coordinator().committed_plan()->on);
    job.run_ticks(100);
    const std::size_t counted = job.process(0).collected.size();
    job.run_ticks(100);
    REQUIRE(job.process(0).collected.size() == counted);
  }
}

TEST_CASE("with the log lost nothing that is on opens before all have said Hello or 15 s have passed") {
  SmallJob job(3);
  go_on(job);
  job.process(2).unheard = true;
  job.kill_coordinator();
  job.restart_coordinator(false);
  REQUIRE_FALSE(job.tick_until([&] { return job.coordinator().committed_plan() != nullptr; }, 1'450));
  REQUIRE(job.tick_until([&] { return job.coordinator().committed_plan() != nullptr; }, 200));
  job.process(2).unheard = false;
  REQUIRE(job.tick_until([&] { return job.all_run(job.last_entry().revision.value); }, 1'500));
  REQUIRE(job.counted_twice().empty());
}

TEST_CASE("with the log lost a rank that had resumed elsewhere than the others is armed") {
  SmallJob job(2);
  go_on(job, 3);
  job.kill(1);
  job.run_ticks(3);
  job.start(1, Step{100});
  job.run_ticks(10);
  job.restart_coordinator(false);
  job.propose(job.plan(true, 5));
  REQUIRE(job.tick_until([&] { return job.last_entry().verdict == "commit"; }, 1'700));
}

TEST_CASE("with the log lost a rank that is dead is not waited for longer than 15 s") {
  SmallJob job(3);
  job.begin(nullptr);
  REQUIRE(job.tick_until([&] { return job.all_past(100); }));
  job.kill(2);
  job.restart_coordinator(false);
  job.propose(job.plan(true, 5));
  REQUIRE_FALSE(job.tick_until([&] { return job.committed(1); }, 1'450));
  REQUIRE(job.tick_until([&] { return job.committed(1); }, 200));
}

TEST_CASE("with the log lost a number's new process counts nothing while an older one may have a lease") {
  SmallJob job(2);
  go_on(job);
  SmallJob::Process& cut = job.process(1);
  cut.unheard = true;
  job.restart_coordinator(false);
  job.start(1, Step{50});
  REQUIRE(job.tick_until([&] { return job.process(1).revision != 0; }, 3'000));
  REQUIRE(job.now() > Ticks{15'000});
  REQUIRE(job.counted_twice().empty());
}

TEST_CASE("a plan that was written back is not written back again") {
  SmallJob job(2);
  go_on(job, 5);
  REQUIRE(job.tick_until([&] { return job.write_backs.size() == 1; }));
  const HistoryEntry ended = job.last_entry();
  REQUIRE(ended.finished_step == job.process(0).collected.back());
  job.restart_coordinator(true);
  job.run_ticks(2'000);
  REQUIRE(job.write_backs.size() == 1);
  REQUIRE(job.coordinator().newest_is_off());
  CHECK(job.last_entry().finished_step == ended.finished_step);
  CHECK(job.last_entry().proposed_at == ended.proposed_at);
}

TEST_CASE("nobody is brought in for a plan that had ended before the coordinator's death") {
  SmallJob job(2);
  auto by_command = std::make_shared<Plan>(*job.plan(true, 5));
  by_command->file.reset();
  job.begin(nullptr);
  job.propose(by_command);
  REQUIRE(job.tick_until([&] { return !job.history().empty() && job.last_entry().finished_step >= 0; }));
  const HistoryEntry ended = job.last_entry();
  job.kill(1);
  job.run_ticks(10);
  job.restart_coordinator(true);
  const SmallJob::Process& next = job.start(1, Step{0});
  REQUIRE(job.tick_until([&] { return next.member->joined() && job.all_past(ended.finished_step + 100); }));
  CHECK(job.history().size() == 1);
  CHECK(job.last_entry().finished_step == ended.finished_step);
  CHECK(job.pending().empty());
}

TEST_CASE("a coordinator that dies and comes back at random leaves no step under two revisions") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SmallJob job(3, {0.05, 0.05, 5, seed});
    std::mt19937_64 random(seed);
    job.begin(job.plan(true, 1'000'000));
    for (int i = 0; i < 12; ++i) {
      job.run_ticks(20 + static_cast<int>(random() % 300));
      job.propose(job.plan(random() % 4 != 0, 1'000'000));
      job.run_ticks(static_cast<int>(random() % 60));
      job.kill_coordinator();
      job.run_ticks(static_cast<int>(random() % 100));
      job.restart_coordinator(true);
    }
    CAPTURE(seed, job.counted_twice());
    REQUIRE(job.counted_twice().empty());
    job.propose(job.plan(true, 1'000'000));
    REQUIRE(job.tick_until(
        [&] { return job.last_entry().verdict == "commit" && job.all_run(job.last_entry().revision.value); },
        80'000));
    for (int rank = 0; rank < 3; ++rank) REQUIRE(job.process(rank).longest_stand <= Ticks{2'010});
  }
}

}  // namespace
}  // namespace gradmon
