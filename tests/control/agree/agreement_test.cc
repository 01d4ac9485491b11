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
  REQUIRE_FALSE(job.tick_until([&] { return job.all_run(1); }, 500));
  REQUIRE(job.coordinator().status().pending->reason == "waiting for rank 2");
  REQUIRE(job.process(0).next == Step{1});
  job.process(2).paused = false;
  REQUIRE(job.tick_until([&] { return job.all_run(1) && job.process(0).next > Step{20}; }));
  REQUIRE(job.divergence().empty());
  REQUIRE(job.process(0).collected == job.process(2).collected);
}

TEST_CASE("a rank that joins later than fence_timeout holds the others no longer than that") {
  SmallJob job(2);
  job.process(1).paused = true;
  job.begin(job.plan(true, 2));
  REQUIRE(job.tick_until([&] { return job.process(0).next > Step{50}; }));
  job.process(1).paused = false;
  REQUIRE(job.tick_until([&] { return job.all_run(1) && job.process(1).next > Step{5000}; }, 60'000));
  REQUIRE(job.divergence().empty());
  REQUIRE(job.process(0).collected == job.process(1).collected);
}

TEST_CASE("a plan that starts off leaves nobody waiting") {
  SmallJob job(3);
  job.begin(nullptr);
  REQUIRE(job.tick_until([&] { return job.process(2).next > Step{100}; }));
  REQUIRE(job.coordinator().status().reason == "not asked for");
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
          std::vector<std::string>{"updates that GradScaler has left out: 1 on rank 1, 2 on rank 2: their "
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
  REQUIRE(job.tick_until([&] { return job.all_run(2); }));
  const auto entries = job.coordinator().journal().entries();
  REQUIRE(entries.size() == 3);
  REQUIRE(entries[1].verdict == "superseded");
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

TEST_CASE("a silent rank is not counted as gone and the change is proposed again") {
  SmallJob job(3);
  job.begin(nullptr);
  job.tick_until([&] { return job.process(2).next > Step{10}; });
  job.process(2).deaf = true;
  job.propose(job.plan(true));
  REQUIRE(job.tick_until([&] { return job.coordinator().journal().entries().size() >= 2; }));
  REQUIRE(job.coordinator().journal().entries().front().verdict == "abort");
  job.process(2).deaf = false;
  REQUIRE(
      job.tick_until([&] { return job.process(0).revision != 0 && job.all_run(job.process(0).revision); }));
  REQUIRE(job.coordinator().journal().entries().back().cause == "retry");
  REQUIRE(job.divergence().empty());
}

TEST_CASE("a rank that ends counts as ready and finished") {
  SmallJob job(3);
  job.begin(nullptr);
  job.tick_until([&] { return job.process(2).next > Step{10}; });
  job.leave(1);
  job.propose(job.plan(true, 2));
  REQUIRE(job.tick_until([&] { return !job.write_backs.empty(); }));
  REQUIRE(job.process(1).member->left_heard());
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

TEST_CASE("a rank that got no verdict from anybody goes on flagged and is brought back") {
  SmallJob job(2);
  job.begin(nullptr);
  job.tick_until([&] { return job.process(1).next > Step{10}; });
  auto asked = std::make_shared<Plan>(*job.plan(true, 1'000'000));
  asked->fence_timeout = Ticks{1000};
  job.propose(asked);
  REQUIRE(job.tick_until([&] { return job.coordinator().journal().entries().front().verdict == "commit"; }));
  job.process(1).cut = true;  // Its verdict is on the way and is lost.
  REQUIRE(job.tick_until([&] { return job.process(0).revision == 1 && job.process(1).next > Step{200}; }));
  REQUIRE(job.process(1).revision == 0);
  job.process(1).cut = false;
  REQUIRE(job.tick_until([&] { return job.all_run(2); }));
  const auto entries = job.coordinator().journal().entries();
  REQUIRE(entries.back().cause == "resync");
  REQUIRE(entries.back().by == "rank 1 missed revision 1");
}

TEST_CASE("a rank that is cut off from the coordinator learns the verdict from the register") {
  SmallJob job(2);
  job.begin(nullptr);
  job.tick_until([&] { return job.process(1).next > Step{10}; });
  job.propose(job.plan(true, 5));
  REQUIRE(job.tick_until([&] { return job.coordinator().journal().entries().front().verdict == "commit"; }));
  job.process(1).unheard = true;
  REQUIRE(job.tick_until([&] { return job.all_run(1) && job.process(1).next > Step{100}; }));
  REQUIRE(job.divergence().empty());
  REQUIRE(job.process(1).collected == job.process(0).collected);
}

TEST_CASE("a process whose rank another has taken stops collecting at its next boundary") {
  SmallJob job(2);
  job.begin(job.plan(true, 1'000'000));
  REQUIRE(job.tick_until([&] { return job.all_run(1) && job.process(1).next > Step{20}; }));
  SmallJob::Process& old = job.process(1);
  old.member->on_message(Replaced{});
  const std::size_t collected = old.collected.size();
  const Step next = old.next;
  REQUIRE(job.tick_until([&] { return old.next > next + 50; }));
  REQUIRE(old.collected.size() <= collected + 1);
  REQUIRE(job.process(0).collected.size() > collected + 40);
  REQUIRE(old.member->left_heard());
}

TEST_CASE("a process that has been replaced promises nothing more") {
  SmallJob job(2);
  job.begin(nullptr);
  REQUIRE(job.tick_until([&] { return job.process(1).next > Step{20}; }));
  job.process(1).member->on_message(Replaced{});
  Prepare prepare;
  prepare.revision = Revision{1};
  prepare.plan = job.plan(true);
  REQUIRE(job.process(1).member->on_message(prepare).send.empty());
  const Step next = job.process(1).next;
  REQUIRE(job.tick_until([&] { return job.process(1).next > next + 500; }));
}

TEST_CASE("a probe tells what a plan would mean on every rank and changes nothing") {
  SmallJob job(3, {0.4, 0.2, 3, 11});
  job.can_carry_out = [](int rank, const Plan&) -> tl::expected<std::int64_t, std::string> {
    if (rank == 2) return tl::unexpected(std::string("no such kind"));
    return 10 + rank;
  };
  job.begin(nullptr);
  REQUIRE(job.tick_until([&] { return job.process(2).next > Step{100}; }));
  job.probe("q", job.plan(true));
  REQUIRE(job.tick_until([&] { return !job.probed.empty(); }));
  REQUIRE(job.probed.size() == 1);
  const ProbeResult& result = job.probed.front();
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
    job.probe("q", nullptr);
    REQUIRE(job.tick_until([&] { return !job.probed.empty(); }));
    const TargetList& list = job.probed.front().answers[1].targets;
    REQUIRE(list.left_out + static_cast<std::int64_t>(list.unmatched.size()) == 1000);
    return list.unmatched.size();
  };
  CHECK(told(2) > 300);
  CHECK(told(64) < 60);
  CHECK(told(64) > 0);
}

TEST_CASE("a probe ends after two seconds where a rank does not answer") {
  SmallJob job(2);
  job.begin(nullptr);
  REQUIRE(job.tick_until([&] { return job.process(1).next > Step{200}; }));
  job.process(1).deaf = true;
  job.probe("q", job.plan(true));
  REQUIRE(job.tick_until([&] { return !job.probed.empty(); }, 210));
  REQUIRE(job.probed.front().answers[0].known);
  REQUIRE_FALSE(job.probed.front().answers[1].known);
}

TEST_CASE("no step is run under two revisions while letters are lost doubled delayed and ranks drift") {
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
    job.propose(job.plan(true, 3));
    CAPTURE(seed, job.divergence());
    REQUIRE(job.divergence().empty());
    REQUIRE(job.tick_until(
        [&] {
          const auto entries = job.coordinator().journal().entries();
          return entries.back().final && entries.back().verdict == "commit" &&
                 job.all_run(entries.back().revision.value);
        },
        60'000));
    const Step done = job.process(0).next + 1000;
    REQUIRE(job.tick_until(
        [&] {
          for (int rank = 0; rank < job.world(); ++rank) {
            if (job.process(rank).next < done) return false;
          }
          return true;
        },
        60'000));
    REQUIRE(job.divergence().empty());
    for (int rank = 1; rank < job.world(); ++rank) {
      REQUIRE(job.process(rank).collected == job.process(0).collected);
    }
  }
}

}  // namespace
}  // namespace gradmon
