// SPDX-License-Identifier: Apache-2.0
#include "control/agree/target_status.h"

#include "control/agree/coordinator.h"
#include "tests/control/agree/small_job.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

TargetStatus target(const std::string& name, std::int64_t silent_steps = 0) {
  return {"grad_reduced", name, 7, 1000, silent_steps, ""};
}

TargetList list_of_four() {
  TargetList list;
  list.counts = {4, 2, 1};
  list.unmatched = {{"fc9", {"fc1"}, ""}};
  list.targets = {target("a"), target("b", 3), target("c"), target("d", 1)};
  return list;
}

std::string names_of(const TargetList& list) {
  std::string names;
  for (const TargetStatus& one : list.targets) names += one.name;
  return names;
}

TEST_CASE("only_silent_or_unmatched keeps silent and unmatched entries and counts the rest") {
  const TargetList list = only_silent_or_unmatched(list_of_four());
  REQUIRE(names_of(list) == "bd");
  REQUIRE(list.unmatched.size() == 1);
  REQUIRE(list.left_out == 2);
  REQUIRE(list.counts.watched == 4);
}

TEST_CASE("a bounded list keeps unmatched entries first and then silent targets and then the rest") {
  REQUIRE(names_of(within(list_of_four(), 10'000)) == "abcd");
  REQUIRE(within(list_of_four(), 10'000).left_out == 0);
  const TargetList most = within(list_of_four(), 320);
  REQUIRE(names_of(most) == "abd");
  REQUIRE(most.left_out == 1);
  const TargetList some = within(list_of_four(), 180);
  REQUIRE(some.unmatched.size() == 1);
  REQUIRE(names_of(some) == "b");
  REQUIRE(some.left_out == 3);
  const TargetList none = within(list_of_four(), 10);
  REQUIRE(none.unmatched.empty());
  REQUIRE(none.targets.empty());
  REQUIRE(none.left_out == 5);
  REQUIRE(none.counts.silent == 2);
}

TEST_CASE("rank 0 lists all its targets and the other ranks only silent or unmatched ones") {
  SmallJob job(3, {0.3, 0.2, 3, 5});
  job.list_targets = [](int rank, const Plan* plan) {
    TargetList list = list_of_four();
    list.counts.watched = 10 * rank + (plan == nullptr ? 1 : 2);
    list.attached = {"Net: gradmon.Monitor"};
    return list;
  };
  job.train_off(100);
  job.dry_run("now", nullptr);
  REQUIRE(job.tick_until([&] { return !job.dry_runs.empty(); }));
  const DryRunResult& now = job.dry_runs.front();
  REQUIRE(names_of(now.answers[0].targets) == "abcd");
  REQUIRE(names_of(now.answers[2].targets) == "bd");
  REQUIRE(now.answers[2].targets.counts.watched == 21);
  REQUIRE(now.answers[1].targets.left_out == 2);
  REQUIRE(now.answers[2].targets.attached == std::vector<std::string>{"Net: gradmon.Monitor"});
  job.dry_run("then", job.plan(true));
  REQUIRE(job.tick_until([&] { return job.dry_runs.size() == 2; }));
  REQUIRE(job.dry_runs[1].answers[1].targets.counts.watched == 12);
  REQUIRE(job.dry_runs[1].answers[1].matches == 1);
}

TEST_CASE("the targets that a rank lists fit into a message") {
  SmallJob job(2);
  job.list_targets = [](int, const Plan*) {
    TargetList list;
    for (int i = 0; i < 10'000; ++i) list.targets.push_back(target(std::string(100, 'x'), 1));
    list.attached.assign(10'000, std::string(100, 'y'));
    return list;
  };
  job.train_off(100);
  job.dry_run("now", nullptr);
  REQUIRE(job.tick_until([&] { return !job.dry_runs.empty(); }));
  const auto& answers = job.dry_runs.front().answers;
  for (std::size_t rank : {0u, 1u}) {
    const TargetList& list = answers[rank].targets;
    REQUIRE(list.targets.size() > 100);
    REQUIRE(list.targets.size() < 500);
    REQUIRE(list.attached.size() < 50);
    REQUIRE(list.left_out + static_cast<std::int64_t>(list.targets.size()) == 10'000);
  }
}

TEST_CASE("lines about unmatched names are bounded and the rest is counted") {
  CHECK(describe_all({}).empty());
  CHECK(describe_all({{"a", {"b", "c"}, ""}, {"(", {}, "bad"}}) ==
        std::vector<std::string>{"\"a\" matches nothing (nearest: b, c)", "\"(\" matches nothing: bad"});
  const std::vector<std::string> many = describe_all(std::vector<UnmatchedTarget>(1000, {"name", {}, ""}));
  REQUIRE(many.size() > 2);
  std::size_t bytes = 0;
  for (const std::string& one : many) bytes += one.size();
  CHECK(bytes < 17 * 1024);
  CHECK(many.back() == "and " + std::to_string(1001 - many.size()) + " more names or patterns match nothing");
}

TEST_CASE("a dry run returns the matches of a plan on every rank and changes nothing") {
  SmallJob job(3, {0.4, 0.2, 3, 11});
  job.can_carry_out = [](int rank, const Plan&) -> tl::expected<std::int64_t, std::string> {
    if (rank == 2) return tl::unexpected(std::string("no such kind"));
    return 10 + rank;
  };
  job.train_off(100);
  job.dry_run("q", job.plan(true));
  REQUIRE(job.tick_until([&] { return !job.dry_runs.empty(); }));
  REQUIRE(job.dry_runs.size() == 1);
  const DryRunResult& result = job.dry_runs.front();
  REQUIRE(result.id == "q");
  REQUIRE(result.answers[0].matches == 10);
  REQUIRE(result.answers[1].matches == 11);
  REQUIRE(result.answers[2].known);
  REQUIRE(result.answers[2].objection == "no such kind");
  REQUIRE(job.history().empty());
}

TEST_CASE("the more ranks a job has the fewer targets each rank lists in a dry run") {
  const auto listed = [](int ranks) {
    SmallJob job(ranks);
    job.list_targets = [](int, const Plan*) {
      TargetList list;
      list.unmatched.resize(1000, {std::string(100, 'x'), {}, ""});
      return list;
    };
    job.begin(nullptr);
    job.tick_until([&] { return job.process(ranks - 1).next > Step{10}; });
    job.dry_run("q", nullptr);
    REQUIRE(job.tick_until([&] { return !job.dry_runs.empty(); }));
    const TargetList& list = job.dry_runs.front().answers[1].targets;
    REQUIRE(list.left_out + static_cast<std::int64_t>(list.unmatched.size()) == 1000);
    return list.unmatched.size();
  };
  CHECK(listed(2) > 300);
  CHECK(listed(64) < 60);
  CHECK(listed(64) > 0);
}

TEST_CASE("a dry run ends after two seconds if a rank does not answer") {
  JobThatIsOff job(2, 200);
  job.process(1).agent_stopped = true;
  job.dry_run("q", job.plan(true));
  REQUIRE_FALSE(job.tick_until([&] { return !job.dry_runs.empty(); }, 190));
  REQUIRE(job.tick_until([&] { return !job.dry_runs.empty(); }, 20));
  REQUIRE(job.dry_runs.front().answers[0].known);
  REQUIRE_FALSE(job.dry_runs.front().answers[1].known);
}

TEST_CASE("a dry run asks all ranks by one message and leaves out a rank that has ended") {
  JobThatIsOff job(3, 10);
  job.leave(1);
  REQUIRE(job.tick_until([&] { return job.coordinator().status().ranks[1].state == "left"; }));
  job.dry_run("q", job.plan(true));
  REQUIRE(job.tick_until([&] { return !job.dry_runs.empty(); }));
  const DryRunResult& result = job.dry_runs.front();
  REQUIRE(result.answers.size() == 2);
  CHECK((result.answers[0].known && result.answers[1].known));
  CHECK(result.answers[1].rank == Rank{2});
}

}  // namespace

}  // namespace gradmon
