// SPDX-License-Identifier: Apache-2.0
#include "control/agree/coordinator.h"
#include "tests/control/agree/small_job.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

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
