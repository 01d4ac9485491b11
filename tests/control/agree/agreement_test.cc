// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <string_view>

#include "control/debian_version.h"
#include "tests/control/agree/small_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

int scaled(int quick, int full) {
  const char* scale = std::getenv("GRADMON_TEST_SCALE");
  return scale != nullptr && std::string_view(scale) == "full" ? full : quick;
}

TEST_CASE("case 3 begins at the step after the first where all ranks join in time") {
  SmallJob job(4);
  job.begin(job.plan(true, 3));
  REQUIRE(job.tick_until([&] { return job.all_run(1) && job.process(3).next > Step{10}; }));
  for (int rank = 0; rank < 4; ++rank) {
    REQUIRE(job.process(rank).collected == std::vector<std::int64_t>{1, 2, 3});
  }
  REQUIRE(job.log == std::vector<std::string>{"ON at step 1 (revision 1, file)"});
}

TEST_CASE("case 3 waits for a rank that joins late and begins at the agreed step") {
  SmallJob job(3);
  job.process(2).paused = true;
  job.begin(job.plan(true, 2));
  job.run_ticks(100);
  REQUIRE(job.process(0).next == Step{1});  // It holds the step after the first.
  REQUIRE_FALSE(job.tick_until([&] { return job.all_run(1); }, 80));
  REQUIRE(job.pending() == "waiting for rank 2 of 3 to create its Monitor");
  job.process(2).paused = false;
  REQUIRE(job.tick_until([&] { return job.all_run(1) && job.process(0).next > Step{20}; }));
  REQUIRE(job.divergence().empty());
  REQUIRE(job.process(0).collected == job.process(2).collected);
}

TEST_CASE("a rank that joins later than max_wait holds the others no longer than that") {
  SmallJob job(2);
  job.process(1).paused = true;
  job.begin(job.plan(true, 2));
  REQUIRE(job.tick_until([&] { return job.process(0).next > Step{50}; }));
  REQUIRE(job.process(0).longest_stand <= Ticks{2'000});
  REQUIRE(job.process(0).warnings.front() ==
          "off: no answer to Hello; training continues without collecting");
  job.process(1).paused = false;
  REQUIRE(job.tick_until([&] { return job.all_run(1) && job.process(1).next > Step{5000}; }, 60'000));
  REQUIRE(job.divergence().empty());
  REQUIRE(job.process(0).collected == job.process(1).collected);
}

TEST_CASE("a plan that starts off leaves nobody waiting") {
  SmallJob job(3);
  job.begin(nullptr);
  REQUIRE(job.tick_until([&] { return job.process(2).next > Step{100}; }));
  REQUIRE(job.coordinator().status().reason == "never turned on");
  REQUIRE(job.coordinator().journal().entries().empty());
}

TEST_CASE("updates that are left out on some ranks only are warned of once all have told of that step") {
  SmallJob job(3);
  job.begin(nullptr);
  const auto told = [&](Step step) {
    return job.tick_until([&] {
      const auto ranks = job.coordinator().status().ranks;
      return std::all_of(ranks.begin(), ranks.end(),
                         [&](const RankStatus& rank) { return rank.step > step.value; });
    });
  };
  REQUIRE(told(Step{20}));
  REQUIRE(job.coordinator().status().warnings.empty());
  for (const int rank : {0, 1, 2}) job.process(rank).skipped = {1, Step{15}};
  REQUIRE(told(Step{200}));
  REQUIRE(job.coordinator().status().warnings.empty());
  // One that a rank has told of in a step that the others have yet to tell of.
  job.process(2).skipped = {2, Step{3000}};
  REQUIRE(told(Step{1000}));
  REQUIRE(job.coordinator().status().warnings.empty());
  REQUIRE(told(Step{3500}));
  REQUIRE(job.coordinator().status().warnings ==
          std::vector<std::string>{"GradScaler skipped 1 updates on rank 1 and 2 on rank 2: their "
                                   "parameters differ"});
}

TEST_CASE("the end of a plan is written back once all ranks have finished") {
  SmallJob job(2);
  job.begin(nullptr);
  job.tick_until([&] { return job.process(1).next > Step{10}; });
  job.propose(job.plan(true, 2));
  REQUIRE(job.tick_until([&] { return !job.write_backs.empty(); }));
  REQUIRE(job.write_backs.front().revision == Revision{1});
  REQUIRE(job.coordinator().newest_is_off());
  REQUIRE(job.tick_until([&] { return job.coordinator().status().reason == "finished"; }));
  REQUIRE(job.coordinator().journal().entries().front().finished_step == job.process(0).collected.back());
}

TEST_CASE("collect_times 0 takes effect, collects nothing and is written back") {
  SmallJob job(2);
  job.begin(nullptr);
  job.tick_until([&] { return job.process(1).next > Step{10}; });
  job.propose(job.plan(true, 0));
  REQUIRE(job.tick_until([&] { return !job.write_backs.empty(); }));
  REQUIRE(job.process(0).collected.empty());
  REQUIRE(job.coordinator().journal().entries().front().verdict == "commit");
}

TEST_CASE("of the changes that arrive while one is open the newest is taken up") {
  SmallJob job(2, {0, 0, 20, 1});
  job.begin(nullptr);
  job.tick_until([&] { return job.process(1).next > Step{10}; });
  job.propose(job.plan(true, 5));
  job.propose(job.plan(true, 6));
  job.propose(job.plan(false));
  REQUIRE(job.tick_until([&] { return job.committed(3) && job.all_run(3); }));
  const auto entries = job.coordinator().journal().entries();
  REQUIRE(entries.size() == 3);
  REQUIRE(entries[0].reason == "superseded by a newer change (test)");
  REQUIRE(entries[1].verdict == "abort");
  REQUIRE(entries[2].verdict == "commit");
  REQUIRE(job.divergence().empty());
}

TEST_CASE("a rank that cannot carry a plan out rejects it for all") {
  SmallJob job(3);
  job.can_carry_out = [](int rank, const Plan&) -> tl::expected<std::int64_t, std::string> {
    if (rank == 2) return tl::unexpected(std::string("no such format"));
    return 4;
  };
  job.begin(nullptr);
  job.tick_until([&] { return job.process(2).next > Step{10}; });
  job.propose(job.plan(true));
  REQUIRE(job.tick_until([&] { return job.coordinator().journal().entries().front().final; }));
  REQUIRE(job.coordinator().journal().entries().front().reason == "rejected by rank 2: no such format");
  job.propose(job.plan(false));
  REQUIRE(job.tick_until([&] { return job.all_run(2); }));
}

TEST_CASE("a plan whose targets match on no rank is rejected and one that matches on some is not") {
  SmallJob job(2);
  std::int64_t matches = 0;
  job.can_carry_out = [&](int rank, const Plan&) -> tl::expected<std::int64_t, std::string> {
    return rank == 1 ? matches : 0;
  };
  job.begin(nullptr);
  job.tick_until([&] { return job.process(1).next > Step{10}; });
  job.propose(job.plan(true));
  REQUIRE(job.tick_until([&] { return job.coordinator().journal().entries().front().final; }));
  REQUIRE(job.coordinator().status().reason == "no target matches on any rank");
  matches = 1;
  job.propose(job.plan(true));
  REQUIRE(job.tick_until([&] { return job.all_run(2); }));
}

TEST_CASE("a plan that matches nowhere is rejected with what matches nothing") {
  SmallJob job(2);
  job.can_carry_out = [](int, const Plan&) -> tl::expected<std::int64_t, std::string> { return 0; };
  job.list_targets = [](int rank, const Plan* asked) {
    TargetList list;
    if (rank == 1 && asked != nullptr) list.unmatched = {{"blok", {"blocks", "lock"}, ""}, {"(", {}, "bad"}};
    return list;
  };
  job.begin(nullptr);
  job.tick_until([&] { return job.process(1).next > Step{10}; });
  job.propose(job.plan(true));
  REQUIRE(job.tick_until([&] { return job.coordinator().journal().entries().front().final; }));
  REQUIRE(job.coordinator().status().reason ==
          "no target matches on any rank: \"blok\" matches nothing (nearest: blocks, lock); "
          "\"(\" matches nothing: bad");
}

TEST_CASE("a rank that ends counts as ready and finished") {
  SmallJob job(3);
  job.begin(nullptr);
  job.tick_until([&] { return job.process(2).next > Step{10}; });
  job.leave(1);
  job.propose(job.plan(true, 2));
  REQUIRE(job.tick_until([&] { return !job.write_backs.empty(); }));
  REQUIRE(job.process(1).member->left_acknowledged());
  REQUIRE(job.divergence().empty());
}

TEST_CASE("training that ends before the plan writes nothing back") {
  SmallJob job(2);
  job.begin(nullptr);
  job.tick_until([&] { return job.process(1).next > Step{10}; });
  job.propose(job.plan(true, 100'000'000));
  REQUIRE(job.tick_until([&] { return job.all_run(1); }));
  job.leave(0);
  job.leave(1);
  REQUIRE_FALSE(job.tick_until([&] { return !job.write_backs.empty(); }, 3000));
  REQUIRE(job.coordinator().journal().entries().front().finished_step == -1);
}

TEST_CASE("a dry run tells what a plan would mean on every rank and changes nothing") {
  SmallJob job(3, {0.4, 0.2, 3, 11});
  job.can_carry_out = [](int rank, const Plan&) -> tl::expected<std::int64_t, std::string> {
    if (rank == 2) return tl::unexpected(std::string("no such kind"));
    return 10 + rank;
  };
  job.begin(nullptr);
  REQUIRE(job.tick_until([&] { return job.process(2).next > Step{100}; }));
  job.dry_run("q", job.plan(true));
  REQUIRE(job.tick_until([&] { return !job.dry_runs.empty(); }));
  REQUIRE(job.dry_runs.size() == 1);
  const DryRunResult& result = job.dry_runs.front();
  REQUIRE(result.id == "q");
  REQUIRE(result.answers[0].matches == 10);
  REQUIRE(result.answers[1].matches == 11);
  REQUIRE(result.answers[2].known);
  REQUIRE(result.answers[2].objection == "no such kind");
  REQUIRE(job.coordinator().journal().entries().empty());
}

TEST_CASE("the more ranks there are the less of its targets each may tell") {
  const auto told = [](int ranks) {
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
  CHECK(told(2) > 300);
  CHECK(told(64) < 60);
  CHECK(told(64) > 0);
}

TEST_CASE("a dry run ends after two seconds where a rank does not answer") {
  SmallJob job(2);
  job.begin(nullptr);
  REQUIRE(job.tick_until([&] { return job.process(1).next > Step{200}; }));
  job.process(1).deaf = true;
  job.dry_run("q", job.plan(true));
  REQUIRE(job.tick_until([&] { return !job.dry_runs.empty(); }, 210));
  REQUIRE(job.dry_runs.front().answers[0].known);
  REQUIRE_FALSE(job.dry_runs.front().answers[1].known);
}

TEST_CASE("a rank that rejects makes nobody wait") {
  SmallJob job(3);
  job.can_carry_out = [](int rank, const Plan&) -> tl::expected<std::int64_t, std::string> {
    if (rank == 2) return tl::unexpected(std::string("no such format"));
    return 4;
  };
  job.begin(nullptr);
  job.tick_until([&] { return job.all_past(10); });
  job.propose(job.plan(true));
  REQUIRE(job.tick_until([&] { return job.last_entry().final; }));
  for (const Envelope& told : job.told) REQUIRE_FALSE(std::holds_alternative<Prepare>(told.message));
  REQUIRE(job.process(0).longest_stand == Ticks{});
}

TEST_CASE("a rank that was never heard is waited for and named") {
  SmallJob job(3);
  job.process(1).paused = job.process(2).paused = true;
  job.begin(nullptr);
  job.tick_until([&] { return job.process(0).next > Step{10}; });
  job.propose(job.plan(true));
  job.run_ticks(6'000);  // Longer than a silent rank is waited for.
  REQUIRE(job.pending() == "waiting for ranks 1, 2 of 3 to create their Monitor");
  REQUIRE(job.process(0).longest_stand == Ticks{});
  job.process(1).paused = job.process(2).paused = false;
  REQUIRE(job.tick_until([&] { return job.all_run(1); }, 10'000));
}

TEST_CASE("a change waits unasked for a rank that is not heard and names it") {
  SmallJob job(3);
  job.begin(nullptr);
  job.tick_until([&] { return job.all_past(200); });
  job.process(2).unheard = true;
  job.run_ticks(400);
  job.propose(job.plan(true));
  job.run_ticks(300);
  REQUIRE(job.pending().rfind("waiting for rank 2 (not heard for ", 0) == 0);
  REQUIRE(job.history().size() == 1);
  REQUIRE(job.process(0).longest_stand == Ticks{});
  job.process(2).unheard = false;
  REQUIRE(job.tick_until([&] { return job.committed(1); }, 110));
}

TEST_CASE("a rank that falls silent after Prepare aborts the change and it is decided once it is heard") {
  SmallJob job(3);
  job.begin(nullptr);
  job.tick_until([&] { return job.all_past(200); });
  job.loses = [](bool up, const Envelope& one) {
    return up && one.rank == Rank{2} && std::holds_alternative<Ready>(one.message);
  };
  job.propose(job.plan(true));
  REQUIRE(job.tick_until([&] { return job.history().size() == 2; }, 150));
  REQUIRE(job.history().front().reason == "rank 2 did not answer");
  REQUIRE(job.process(0).longest_stand <= Ticks{1'100});
  job.loses = nullptr;
  REQUIRE(job.tick_until([&] { return job.committed(2); }, 110));
  REQUIRE(job.last_entry().cause == "retry");
  REQUIRE(job.tick_until([&] { return job.all_run(2); }));
  REQUIRE(job.divergence().empty());
}

TEST_CASE("a rank whose process dies is dropped at once and the next change is decided without it") {
  SmallJob job(3);
  job.begin(nullptr);
  job.tick_until([&] { return job.all_past(200); });
  job.kill(1);
  job.run_ticks(2);
  REQUIRE(job.coordinator().status().ranks[1].state == "dropped");
  job.propose(job.plan(true));
  REQUIRE(job.tick_until([&] { return job.committed(1) && job.all_run(1); }, 20));
}

TEST_CASE("a change that waits for an answer is decided at once when that rank's process dies") {
  SmallJob job(3);
  job.begin(nullptr);
  job.tick_until([&] { return job.all_past(200); });
  job.process(1).deaf = true;
  job.propose(job.plan(true));
  job.run_ticks(150);
  REQUIRE_FALSE(job.committed(1));
  job.kill(1);
  REQUIRE(job.tick_until([&] { return job.last_entry().verdict == "commit"; }, 50));
}

TEST_CASE("a silent rank is dropped after 15 s and what waited for it is decided") {
  SmallJob job(3);
  job.begin(nullptr);
  job.tick_until([&] { return job.all_past(200); });
  job.process(1).unheard = true;
  job.run_ticks(300);
  job.propose(job.plan(true, 1'000'000));
  REQUIRE_FALSE(job.tick_until([&] { return job.committed(1); }, 1'000));
  REQUIRE(job.tick_until([&] { return job.committed(1); }, 400));
  REQUIRE(job.coordinator().status().ranks[1].error.rfind("silent, last heard 15 s earlier", 0) == 0);
  REQUIRE(job.tick_until([&] { return job.process(0).revision == 1 && job.process(2).revision == 1; }, 100));
  // When it is heard again a resync brings it in.
  job.process(1).unheard = false;
  REQUIRE(job.tick_until([&] { return job.all_run(2); }));
  REQUIRE(job.last_entry().cause == "resync");
  REQUIRE(job.counted_twice().empty());
}

TEST_CASE("off is decided within 2 s though all other ranks are silent") {
  SmallJob job(4);
  job.begin(job.plan(true, 1'000'000));
  REQUIRE(job.tick_until([&] { return job.all_run(1) && job.all_past(200); }));
  for (int rank = 1; rank < 4; ++rank) job.process(rank).unheard = true;
  SECTION("that have just fallen silent") { job.run_ticks(1); }
  SECTION("that have been silent for long") { job.run_ticks(400); }
  job.propose(job.plan(false));
  REQUIRE(job.tick_until([&] { return job.committed(2); }, 200));
  REQUIRE(job.coordinator().status().ranks[2].state != "dropped");
  // Those that are silent are off by their lease.
  job.run_ticks(1'010);
  const std::size_t counted = job.process(2).collected.size();
  job.run_ticks(100);
  REQUIRE(job.process(2).collected.size() == counted);
}

TEST_CASE("off is decided while a rank of an open change does not answer") {
  SmallJob job(3);
  job.begin(nullptr);
  job.tick_until([&] { return job.all_past(200); });
  job.process(1).deaf = true;
  job.propose(job.plan(true));
  job.run_ticks(20);
  job.propose(job.plan(false));
  REQUIRE(job.tick_until([&] { return job.committed(2); }, 200));
  REQUIRE(job.process(0).longest_stand < Ticks{2'000});
}

TEST_CASE("where deciding takes at most a fifth of a step the change holds from the next step") {
  SmallJob job(2);
  job.begin(nullptr);
  for (int rank : {0, 1}) job.process(rank).step_ms = 1'000;
  const auto slowly = [&](const std::function<bool()>& condition) {
    return job.tick_until([&] {
      for (int rank : {0, 1}) job.process(rank).paused = job.now().count() % 1'000 != 0;
      return condition();
    });
  };
  REQUIRE(slowly([&] { return job.all_past(3); }));
  for (std::uint64_t revision = 1; revision <= 3; ++revision) {
    const Step edited = job.process(0).gate->current();
    job.propose(job.plan(true, 1));
    REQUIRE(slowly([&] { return job.committed(revision) && job.all_past(edited.value + 3); }));
    REQUIRE(job.process(0).collected.size() == revision);
    REQUIRE(job.process(0).collected.back() == edited.value + 1);
  }
}

TEST_CASE("a change of the user's is never replaced by one of gradmon's own") {
  SmallJob job(2);
  job.begin(nullptr);
  job.tick_until([&] { return job.all_past(200); });
  job.process(1).unheard = true;
  job.run_ticks(300);
  job.propose(job.plan(true, 7));
  auto own = std::make_shared<Plan>(*job.plan(true, 1));
  own->cause = Cause::alert;
  job.propose(own);
  job.process(1).unheard = false;
  REQUIRE(job.tick_until([&] { return job.committed(1) && job.all_run(1) && job.all_past(1'000); }));
  REQUIRE(job.process(0).collected.size() == 7);
  REQUIRE(job.history().size() == 2);
}

TEST_CASE("what is waiting or open can be cancelled") {
  SmallJob job(2);
  job.begin(nullptr);
  job.tick_until([&] { return job.all_past(200); });
  REQUIRE_FALSE(job.cancel());
  job.process(1).deaf = true;
  job.propose(job.plan(true));
  job.run_ticks(10);
  REQUIRE(job.cancel());
  REQUIRE(job.last_entry().reason == "withdrawn by somebody");
  REQUIRE(job.last_entry().final);
  job.process(1).deaf = false;
  job.run_ticks(1'000);
  REQUIRE(job.process(0).revision == 0);
  REQUIRE(job.history().size() == 1);
}

TEST_CASE("no step is counted under two revisions while messages are lost doubled delayed and ranks drift") {
  const int seeds = scaled(40, 400);
  for (int seed = 1; seed <= seeds; ++seed) {
    SmallJob job(2 + seed % 4, {0.1 * (seed % 4), 0.1, seed % 30, static_cast<std::uint64_t>(seed)});
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    job.begin(seed % 2 == 0 ? job.plan(true, 2) : nullptr);
    for (int change = 0; change < 12; ++change) {
      for (int i = 0; i < 40; ++i) {
        job.process(static_cast<int>(random() % static_cast<std::uint64_t>(job.world()))).paused =
            random() % 3 == 0;
        job.tick(static_cast<int>(random() % 4));
      }
      job.propose(job.plan(random() % 2 == 0, static_cast<std::int64_t>(random() % 5)));
    }
    for (int rank = 0; rank < job.world(); ++rank) job.process(rank).paused = false;
    CAPTURE(seed, job.counted_twice());
    REQUIRE(job.counted_twice().empty());
    job.propose(job.plan(true, 3));
    REQUIRE(job.tick_until(
        [&] {
          const auto entries = job.history();
          return entries.back().final && entries.back().verdict == "commit" &&
                 job.all_run(entries.back().revision.value);
        },
        200'000));
    const std::int64_t done = job.process(0).next.value + 1000;
    REQUIRE(job.tick_until([&] { return job.all_past(done); }, 60'000));
    REQUIRE(job.counted_twice().empty());
    // Those that have never lapsed have collected the same steps.
    std::optional<std::vector<std::int64_t>> collected;
    for (const SmallJob::Process& own : job.processes()) {
      REQUIRE(own.longest_stand <= Ticks{2'000});
      if (!own.warnings.empty()) continue;
      if (!collected) collected = own.collected;
      REQUIRE(own.collected == *collected);
    }
  }
}

}  // namespace
}  // namespace gradmon
