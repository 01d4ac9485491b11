// SPDX-License-Identifier: Apache-2.0
#include "control/agree/decision_log.h"

#include <algorithm>
#include <memory>
#include <random>
#include <set>

#include "control/agree/membership.h"
#include "tests/control/agree/small_job.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

TEST_CASE("a compacted log keeps the newest plans, the user's plan, an open offer and the ranks") {
  const auto plan = [](Cause cause) {
    auto made = std::make_shared<Plan>();
    made->cause = cause;
    made->config_text = std::string(1'000, 'x');
    return made;
  };
  std::vector<LogEntry> entries{JoinedEntry{Rank{0}, 1, {}}};
  const auto decide = [&](std::uint64_t revision, Cause cause) {
    entries.emplace_back(OfferedEntry{Revision{revision}, plan(cause), 0});
    entries.emplace_back(Verdict{Revision{revision}, plan(cause), Step{9}, AbortReason::none, ""});
    entries.emplace_back(AppliedEntry{Revision{revision}});
  };
  decide(1, Cause::file);
  decide(2, Cause::ctl);
  for (std::uint64_t revision = 3; revision < 9; ++revision) decide(revision, Cause::budget);
  entries.emplace_back(WrittenBackEntry{Revision{8}});
  entries.emplace_back(DepartureEntry{Rank{0}, DepartureEntry::How::left, Step{3}, ""});
  entries.emplace_back(OfferedEntry{Revision{9}, plan(Cause::file), 0});
  const auto offers = [](const std::vector<LogEntry>& left) {
    std::vector<std::uint64_t> revisions;
    for (const LogEntry& entry : left) {
      if (const auto* offered = std::get_if<OfferedEntry>(&entry))
        revisions.push_back(offered->revision.value);
    }
    return revisions;
  };
  const auto least = compacted(entries, 0);
  CHECK(offers(least) == std::vector<std::uint64_t>{2, 8, 9});
  CHECK(least.size() == 3 + 3 + 1 + 3);  // revisions 2, 8, its end, and 9 between the rank's entries
  CHECK(std::holds_alternative<JoinedEntry>(least.front()));
  CHECK(offers(compacted(entries, 6'000)) == std::vector<std::uint64_t>{2, 7, 8, 9});
  CHECK(offers(compacted(entries, 1'000'000)).size() == 9);
  CHECK(compacted({}, 0).empty());
}

// The result of Membership::restore() for the entries.
std::string restored_members(const std::vector<LogEntry>& entries) {
  Membership members({"", "", 0, "launch", 2});
  for (const LogEntry& entry : entries) {
    if (const auto* joined = std::get_if<JoinedEntry>(&entry)) members.restore(*joined, Ticks{});
    if (const auto* gone = std::get_if<DepartureEntry>(&entry)) members.restore(*gone);
  }
  std::string text = std::to_string(members.last_departed_step().value_or(Step{-1}).value);
  for (const Membership::Member& member : members) {
    text += "; " + std::to_string(static_cast<int>(member.phase)) + " " + member.hello.process_id + " " +
            member.hello.held_epoch + " " + std::to_string(member.incarnation) + " " +
            std::to_string(member.first_incarnation) + " " + std::to_string(member.first_start.value) + " " +
            std::to_string(member.progress.step.value) + " " + std::to_string(member.last_step.value) + " " +
            member.evicted_by;
  }
  return text;
}

std::set<std::string> epochs_in(const std::vector<LogEntry>& entries) {
  std::set<std::string> epochs;
  for (const LogEntry& entry : entries) {
    if (const auto* joined = std::get_if<JoinedEntry>(&entry)) epochs.insert(joined->hello.held_epoch);
  }
  return epochs;
}

TEST_CASE("a compacted log gives the same members, whoever has joined and gone in whatever order") {
  std::mt19937_64 random(5);
  std::size_t least = 1'000;
  for (int log = 0; log < 2'000; ++log) {
    std::vector<LogEntry> entries;
    for (std::uint64_t i = 1; i <= 30; ++i) {
      const Rank rank{static_cast<int>(random() % 2)};
      const Step step{static_cast<std::int64_t>(random() % 100)};
      if (random() % 3 == 0) {
        entries.emplace_back(
            DepartureEntry{rank, static_cast<DepartureEntry::How>(random() % 3), step, "somebody"});
        continue;
      }
      Hello hello;
      hello.process_id = random() % 5 == 0 ? "other " + std::to_string(random() % 2) : "process";
      hello.held_epoch = random() % 5 == 0 ? "" : random() % 5 == 0 ? "earlier" : "epoch";
      hello.start_iteration = hello.step = step;
      hello.lapsed = random() % 2 == 0;
      entries.emplace_back(JoinedEntry{rank, i, hello});
    }
    const auto left = compacted(entries, 0);
    REQUIRE(restored_members(left) == restored_members(entries));
    REQUIRE(epochs_in(left) == epochs_in(entries));
    least = std::min(least, left.size());
  }
  CHECK(least < 20);
}

TEST_CASE("a rank that lapses or is started again and again takes no more room in a compacted log") {
  const bool one_process = GENERATE(true, false);
  std::vector<LogEntry> entries;
  for (std::uint64_t i = 1; i <= 1'000; ++i) {
    Hello hello;
    hello.process_id = one_process ? "process" : "process " + std::to_string(i);
    hello.held_epoch = i == 1 ? "" : "epoch";
    hello.step = Step{static_cast<std::int64_t>(10 * i)};
    entries.emplace_back(JoinedEntry{Rank{0}, i, hello});
    entries.emplace_back(DepartureEntry{Rank{0}, DepartureEntry::How::dropped, hello.step + 5, ""});
  }
  CHECK(compacted(entries, 0).size() <= 6);
}

TEST_CASE("a coordinator that restarts with its log disturbs no rank") {
  CollectingJob job(3);
  job.kill_coordinator();
  job.run_ticks(100);
  job.restart_coordinator(true, nullptr);
  job.run_ticks(2'000);
  REQUIRE(job.in_force_on_all(1));
  REQUIRE(job.coordinator().status().state == "on");
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(job.process(rank).collected.size() > 2'100);
    REQUIRE(job.process(rank).longest_wait < Ticks{100});
  }
  job.propose(job.plan(true, 5));
  REQUIRE(job.tick_until([&] { return job.committed(2) && job.in_force_on_all(2); }));
  REQUIRE(job.counted_divergence().empty());
}

TEST_CASE("a coordinator that restarts with its log does not say again that a plan was applied") {
  CollectingJob job(3);
  job.propose(job.plan(true, 5));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2) && job.log.size() == 2; }));
  const std::vector<std::string> said = job.log;
  CHECK(said[0].find("ON at step ") == 0);
  CHECK(said[0].find("(revision 1, ") != std::string::npos);
  CHECK(said[1].find("(revision 2, ") != std::string::npos);
  for (int death = 0; death < 2; ++death) {
    job.kill_coordinator();
    job.run_ticks(100);
    job.restart_coordinator(true, nullptr);
    job.run_ticks(2'000);
    CHECK(job.log == said);
  }
  // A plan that was committed, but applied by no rank before the death, is still to be said.
  job.propose(job.plan(false));
  REQUIRE(job.tick_until([&] { return job.committed(3); }));
  job.restart_coordinator(true, nullptr);
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(3) && job.log.size() == 3; }));
  CHECK(job.log[2].find("OFF at step ") == 0);
}

TEST_CASE("a change that was open when the coordinator died is aborted and retried under a new revision") {
  CollectingJob job(3);
  const bool promised = GENERATE(false, true);
  job.should_lose = [&](bool up, const Envelope& one) {
    return up && (promised ? std::holds_alternative<Ready>(one.message)
                           : std::holds_alternative<Offered>(one.message));
  };
  job.propose(job.plan(true, 5));
  job.run_ticks(10);
  job.kill_coordinator();
  job.should_lose = nullptr;
  job.run_ticks(10);
  job.restart_coordinator(true);
  REQUIRE(job.tick_until([&] { return job.committed(3) && job.in_force_on_all(3); }));
  REQUIRE(job.coordinator().journal().find(Revision{2})->reason == "the hub restarted");
  REQUIRE(job.process(0).collected.size() == job.process(2).collected.size());
  REQUIRE(job.counted_divergence().empty());
}

TEST_CASE("a commit that cannot be logged becomes an abort but off is still sent") {
  CollectingJob job(2);
  job.propose(job.plan(true, 5));
  job.tick_until([&] { return std::holds_alternative<OfferedEntry>(job.decisions.entries.back()); });
  job.decisions.failing = true;
  REQUIRE(job.tick_until([&] { return job.coordinator().journal().find(Revision{2})->verdict == "abort"; }));
  REQUIRE(job.coordinator().journal().find(Revision{2})->reason ==
          "the verdict could not be written to the decision log");
  REQUIRE(job.in_force_on_all(1));
  job.propose(job.plan(false));
  REQUIRE(job.tick_until([&] { return job.last_entry().verdict == "commit"; }, 200));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(job.last_entry().revision.value); }, 100));
}

TEST_CASE("an off that was never logged still holds after the coordinator restarts") {
  CollectingJob job(3);
  job.decisions.failing = true;
  job.process(2).partitioned = true;
  job.propose(job.plan(false));
  REQUIRE(job.tick_until([&] { return job.process(0).revision == 2 && job.process(1).revision == 2; }, 300));
  job.kill_coordinator();
  job.process(2).partitioned = false;
  job.decisions.failing = false;
  job.run_ticks(10);
  job.restart_coordinator(true);
  REQUIRE(job.tick_until([&] { return job.process(2).revision == 2; }, 300));
  REQUIRE(job.coordinator().status().state == "off");
  job.propose(job.plan(true, 5));
  REQUIRE(job.tick_until([&] { return job.committed(3) && job.in_force_on_all(3); }, 500));
}

TEST_CASE("the revision of an unlogged off that a rank reported is not reused after a second restart") {
  CollectingJob job(2);
  job.decisions.failing = true;
  job.propose(job.plan(false));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }, 300));
  job.kill_coordinator();
  job.decisions.failing = false;
  job.restart_coordinator(true);
  REQUIRE(job.tick_until([&] { return !job.coordinator().committed_plan()->on; }, 300));
  job.restart_coordinator(true);
  job.propose(job.plan(false));
  CHECK(job.last_entry().revision == Revision{3});
}

TEST_CASE("an unlogged off that a rank reports while a lower revision is open stays decided") {
  CollectingJob job(2);
  job.decisions.failing = true;
  for (std::uint64_t revision : {std::uint64_t{2}, std::uint64_t{3}}) {
    job.propose(job.plan(false));
    REQUIRE(job.tick_until([&] { return job.in_force_on_all(revision); }, 300));
  }
  job.kill_coordinator();
  job.decisions.failing = false;
  job.restart_coordinator(true);
  job.sent.clear();
  job.propose(job.plan(false));
  REQUIRE(job.last_entry().revision == Revision{2});
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(4); }, 500));
  for (const Envelope& envelope : job.sent) {
    if (const auto* decided = std::get_if<Decided>(&envelope.message);
        decided != nullptr && decided->last.commit)
      CHECK(decided->last.closed >= decided->last.commit->revision);
  }
}

TEST_CASE("a restored verdict ends only the change with its own revision") {
  SmallJob job(1);
  Verdict off;
  off.revision = Revision{7};
  off.plan = job.plan(false);
  Verdict aborted;
  aborted.revision = Revision{5};
  aborted.abort_reason = AbortReason::restarted;
  NullDecisionLog log;
  Coordinator coordinator({"epoch", "run", 100, "launch"}, log);
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

TEST_CASE("a full disk is warned of once while a change waits for the decision log") {
  CollectingJob job(2);
  job.decisions.failing = true;
  job.propose(job.plan(true, 5));
  job.run_ticks(1'000);
  CHECK(job.warnings == std::vector<std::string>{"decision log: no space left on device"});
  job.decisions.failing = false;
  CHECK(job.tick_until([&] { return job.committed(2); }, 300));
}

TEST_CASE("after the log is lost the ranks' plan goes on with its remaining steps and a higher revision") {
  JobThatIsOff job(2, 100);
  job.propose(job.plan(true, 1));
  job.tick_until([&] { return job.write_backs.size() == 1; });
  job.propose(job.plan(true, 1'000));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  const std::int64_t first = job.last_entry().effective_step;
  job.run_ticks(200);
  job.kill_coordinator();
  job.run_ticks(20);
  job.restart_coordinator(false);
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(3); }, 1'000));
  REQUIRE(job.last_entry().cause == "resync");
  REQUIRE(job.tick_until([&] { return job.all_past(first + 1'500); }));
  for (int rank : {0, 1}) {
    REQUIRE(job.process(rank).collected.size() == 1'001);
    REQUIRE(job.process(rank).collected.back() == first + 999);
  }
  REQUIRE(job.counted_divergence().empty());
}

TEST_CASE("an epoch's order exceeds the order that a rank reports only if the clock was set back") {
  NullDecisionLog log;
  Coordinator coordinator({"new", "run", 100, "launch"}, log);
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
  CHECK(order_told(150, 1) == 100);  // The rank's epoch is newer: the rank must not join.
  CHECK(order_told(5'000, 2) == 5'001);
  CHECK(order_told(4'000, 3) == 5'001);
}

TEST_CASE("after the log is lost and no rank holds a plan the epoch begins with the file") {
  JobThatIsOff job(2, 100);
  job.kill_coordinator();
  job.restart_coordinator(false, job.plan(true, 7));
  REQUIRE(job.tick_until([&] { return job.committed(1) && job.in_force_on_all(1) && job.all_past(1'000); },
                         2'000));
  REQUIRE(job.process(0).collected.size() == 7);
}

TEST_CASE("after the log is lost a newer save of the file wins over the plan that the ranks hold") {
  CollectingJob job(2);
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
    REQUIRE(job.counted_in(100, 0) == 0);
  }
}

TEST_CASE("after the log is lost no plan that is on is offered until all ranks say Hello or 15 s pass") {
  CollectingJob job(3);
  job.process(2).partitioned = true;
  job.kill_coordinator();
  job.restart_coordinator(false);
  REQUIRE_FALSE(job.tick_until([&] { return job.coordinator().committed_plan() != nullptr; }, 1'450));
  REQUIRE(job.tick_until([&] { return job.coordinator().committed_plan() != nullptr; }, 200));
  job.process(2).partitioned = false;
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(job.last_entry().revision.value); }, 1'500));
  REQUIRE(job.counted_divergence().empty());
}

TEST_CASE("a plan that was written back is not written back again after a restart") {
  CollectingJob job(2, 5);
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

TEST_CASE("a plan that ended before the coordinator's death is not proposed again for a new process") {
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

TEST_CASE("a coordinator that restarts from a compacted log goes on with the newest plan and new revisions") {
  CollectingJob job(2);
  for (const bool on : {false, true, false, true}) {
    job.propose(job.plan(on, 1'000'000));
    REQUIRE(job.tick_until([&] { return !job.coordinator().busy(); }));
  }
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(5); }));
  const std::size_t whole = job.decisions.entries.size();
  const std::int64_t effective = job.last_entry().effective_step;
  job.kill_coordinator();
  job.decisions.entries = compacted(job.decisions.entries, 0);
  CHECK(job.decisions.entries.size() + 8 <= whole);  // without the offers and verdicts of four revisions
  job.restart_coordinator(true);
  REQUIRE(job.tick_until([&] { return job.coordinator().status().state == "on"; }));
  CHECK(job.coordinator().status().effective_step == effective);
  CHECK(job.history().size() == 1);
  job.propose(job.plan(true, 1'000'000));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(6); }));
  REQUIRE(job.counted_divergence().empty());
}

}  // namespace

}  // namespace gradmon
