// SPDX-License-Identifier: Apache-2.0
// Each way in which a rank or a hub can end, hang or come back, and its effect on the
// plan and on training.
#include <signal.h>

#include <algorithm>
#include <functional>

#include "control/debian_version.h"
#include "tests/support/outcome.h"
#include "tests/whole/chaos/audit.h"
#include "tests/whole/chaos/killable_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kTimeout{180};
constexpr milliseconds kMaxWait{2000};
constexpr milliseconds kOptimizerTime{500};  // Monitor::step() also runs the optimizer
constexpr seconds kLease{10};

const std::vector<std::string> kEndlessTraining = {"--steps", "100000000", "--step-ms", "10"};

std::string config(bool on, int times, const std::string& more = "") {
  return "{\"wg_distribution\": true, \"dynamic_on\": " + std::string(on ? "true" : "false") +
         ", \"collect_times\": " + std::to_string(times) + more + "}";
}

KillableJob::Start launch(const std::string& name, std::int64_t first = 0, int world = 0) {
  return {name, first, world, kEndlessTraining};
}

bool wait_for(const std::function<bool()>& condition) { return eventually(condition, kTimeout); }

bool all_ranks_passed(KillableJob& job, std::int64_t beyond = 5) {
  return wait_for([&] {
    const auto ranks = job.status().ranks;
    return !ranks.empty() && std::all_of(ranks.begin(), ranks.end(),
                                         [&](const RankStatus& rank) { return rank.step > beyond; });
  });
}

// Waits until the hub has not heard the rank for `time`.
bool wait_until_silent(KillableJob& job, std::size_t rank, milliseconds time) {
  return wait_for([&] {
    const Status status = job.status();
    return rank < status.ranks.size() && status.ranks[rank].last_seen_ms >= time.count();
  });
}

// Waits until `count` processes of the launch have noted that they lapsed.
bool wait_for_lapses(const KillableJob& job, const std::string& launch, std::size_t count) {
  return wait_for([&] {
    std::size_t lapsed = 0;
    for (const auto& [rank, directory] : run_directories(job.output_dir(launch))) {
      const std::string notes = read_text(directory / "switches.jsonl");
      if (notes.find("\"revision\":0,") != std::string::npos) ++lapsed;
    }
    return lapsed >= count;
  });
}

bool wait_until_collecting(KillableJob& job) {
  return wait_for([&] { return job.status().collected > 20; });
}

// Waits until the newest change is committed and exactly `ranks` ranks have applied it.
bool in_force(KillableJob& job, std::size_t ranks, std::size_t at_least_entries = 1) {
  return wait_for([&] {
    const auto history = job.history();
    return history.size() >= at_least_entries && history.back().verdict == "commit" &&
           history.back().applied.size() == ranks;
  });
}

bool all_finished(KillableJob& job) {
  return wait_for([&] {
    const auto history = job.history();
    return !history.empty() && history.back().finished_step > 0;
  });
}

bool makes_progress(const RankRun& run) {
  const auto size = std::filesystem::file_size(run.step_log);
  return wait_for([&] { return std::filesystem::file_size(run.step_log) > size + 100; });
}

void check(KillableJob& job, const std::string& launch, std::size_t lapses = 0) {
  const Audit found = audit_launch(job, launch);
  CAPTURE(launch, found.violations, found.slowest, job.logs());
  CHECK(found.violations.empty());
  CHECK(found.lapses.size() == lapses);
  CHECK(found.longest_call < kMaxWait + kOptimizerTime);
}

// Commits a last plan on `ranks` ranks and waits until it has run to its end.
void run_last_plan(KillableJob& job, std::size_t ranks) {
  const std::size_t before = job.history().size();
  write_text(job.config_path, config(true, 3, ", \"eps\": 2e-8"));
  CAPTURE(job.logs());
  REQUIRE(in_force(job, ranks, before + 1));
  REQUIRE(all_finished(job));
  REQUIRE(wait_for(
      [&] { return read_text(job.config_path).find("\"dynamic_on\": false") != std::string::npos; }));
}

// A last plan runs on all ranks of a job of one launch, and the audit of the launch finds nothing.
void end_well(KillableJob& job, std::size_t lapses = 0) {
  run_last_plan(job, 3);
  check(job, "one", lapses);
}

// A job of three ranks that trains, off.
struct IdleJob : KillableJob {
  IdleJob() : KillableJob(3, config(false, 1)) {
    start_all(launch("one"));
    REQUIRE(all_ranks_passed(*this));
  }
};

// A job of three ranks that collects, for ever.
struct CollectingJob : KillableJob {
  CollectingJob() : KillableJob(3, config(true, 1000000)) {
    start_all(launch("one"));
    REQUIRE(wait_until_collecting(*this));
  }
};

constexpr char kFarFence[] = ", \"lookahead_steps\": 300";

TEST_CASE("a resync collects only the remaining steps of the plan it continues") {
  KillableJob job(3, config(true, 1500));
  job.start_all(launch("one"));
  REQUIRE(wait_until_collecting(job));
  job.kill(job.run(1));
  job.start(1, launch("one", 5));
  REQUIRE(in_force(job, 3, 2));
  REQUIRE(all_finished(job));
  const auto history = job.history();
  REQUIRE(history.size() == 2);
  CHECK(history[1].finished_step == history[0].effective_step + 1499);
  check(job, "one");
}

TEST_CASE("a rank killed between its promise and the effective step rejoins by a later plan") {
  IdleJob job;
  write_text(job.config_path, config(true, 1000000, kFarFence));
  REQUIRE(eventually([&] { return !job.history().empty() && job.history().back().verdict == "commit"; }));
  job.kill(job.run(1));
  REQUIRE(in_force(job, 2));
  job.start(1, launch("one"));
  REQUIRE(in_force(job, 3, 2));
  end_well(job);
}

TEST_CASE("a rank stopped for less than its lease continues to collect") {
  CollectingJob job;
  job.stop(job.run(1));
  REQUIRE(wait_until_silent(job, 1, kLease / 2));
  job.resume(job.run(1));
  const std::int64_t collected = job.status().collected;
  REQUIRE(wait_for([&] { return job.status().collected > collected + 100; }));
  CHECK(job.history().size() == 1);
  end_well(job);
}

TEST_CASE("a change made just before or just after a hub is killed takes effect") {
  IdleJob job;
  write_text(job.config_path, config(true, 1000000, kFarFence));
  job.kill_hub();
  REQUIRE(in_force(job, 3));
  write_text(job.config_path, config(true, 1000000, ", \"step_interval\": 2"));
  job.kill_hub();
  write_text(job.config_path, config(true, 1000000, ", \"step_interval\": 3"));
  REQUIRE(wait_for([&] { return job.status().step_interval == 3; }));
  REQUIRE(in_force(job, 3));
  end_well(job);
}

TEST_CASE("after rank 0 is killed the other ranks agree without it and it rejoins") {
  CollectingJob job;
  job.kill(job.run(0));
  write_text(job.config_path, config(true, 1000000, ", \"step_interval\": 2"));
  REQUIRE(in_force(job, 2, 2));
  job.start(0, launch("one"));
  REQUIRE(in_force(job, 3, 3));
  end_well(job);
}

TEST_CASE("without rank 0 and its hub the other ranks lapse until rank 0 is back") {
  CollectingJob job;
  const std::string epoch = job.status().epoch;
  job.kill(job.run(0));
  job.kill_hub();
  REQUIRE(wait_for_lapses(job, "one", 2));
  for (const int rank : {1, 2}) CHECK(makes_progress(job.run(rank)));
  job.start(0, launch("one"));
  REQUIRE(in_force(job, 3, 2));
  CHECK(job.status().epoch == epoch);
  end_well(job, 2);
}

TEST_CASE("after rank 0 is killed the plan in force runs out and the other ranks train to the end") {
  KillableJob job(3, config(false, 1));
  job.start(0, launch("one"));
  for (const int rank : {1, 2}) job.start(rank, {"one", 0, 0, {"--steps", "3000", "--step-ms", "5"}});
  REQUIRE(all_ranks_passed(job));
  write_text(job.config_path, config(true, 400));
  REQUIRE(in_force(job, 3));
  const auto begun = job.history().at(0).effective_step;
  job.kill(job.run(0));
  for (const int rank : {1, 2}) {
    CAPTURE(rank, job.logs());
    CHECK(job.wait(job.run(rank), kTimeout) == 0);
    const RowsByStep rows = rows_in_files(job.output_dir("one"), "grad_reduced")[rank];
    REQUIRE(rows.size() == 400);
    CHECK(rows.begin()->first == begun);
  }
  CHECK(read_text(job.config_path) == config(false, 400));
  check(job, "one");
}

TEST_CASE("after a restart of all ranks the config file decides whether the new epoch begins on or off") {
  CollectingJob job;
  const std::string before = job.status().epoch;
  job.kill_all();
  job.start_all(launch("two", 15));
  REQUIRE(in_force(job, 3));
  CHECK(job.status().epoch != before);
  CHECK(job.history().at(0).cause == "start");
  CHECK(job.history().at(0).effective_step > 15);
  job.kill_all();
  write_text(job.config_path, config(false, 3));
  job.start_all(launch("three", 30));
  REQUIRE(all_ranks_passed(job, 40));
  CHECK(job.history().empty());
  CHECK(job.status().state == "off");
  check(job, "one");
  check(job, "two");
}

TEST_CASE("a process left over from an old launch stays in its epoch") {
  CollectingJob job;
  RankRun& left_over = job.run(1);
  job.kill(job.run(0));
  job.kill(job.run(2));
  job.start_all(launch("two", 10));
  REQUIRE(in_force(job, 3));
  CHECK(makes_progress(left_over));
  job.kill(left_over);
  run_last_plan(job, 3);
  check(job, "one");
  check(job, "two");
}

TEST_CASE("a restarted job may have more ranks or fewer") {
  KillableJob job(3, config(true, 3));
  job.start_all(launch("one", 0, 2));
  REQUIRE(in_force(job, 2));
  REQUIRE(all_finished(job));
  job.kill_all();
  job.start_all(launch("two", 100, 3));
  REQUIRE(all_ranks_passed(job, 105));
  run_last_plan(job, 3);
  job.kill_all();
  job.start_all(launch("three", 10'000, 2));
  REQUIRE(all_ranks_passed(job, 10'005));
  run_last_plan(job, 2);
  for (const char* name : {"one", "two", "three"}) check(job, name);
}

}  // namespace
}  // namespace gradmon
