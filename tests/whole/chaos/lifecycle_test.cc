// SPDX-License-Identifier: Apache-2.0
// Ends of ranks and hubs that random faults (chaos_test) do not bring about, and their effect on the plan and
// on training. tests/control/agree has each fault by itself.
#include <signal.h>

#include <algorithm>
#include <functional>

#include "tests/support/catch.h"
#include "tests/support/outcome.h"
#include "tests/whole/chaos/audit.h"
#include "tests/whole/chaos/killable_job.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kTimeout{180};
constexpr milliseconds kMaxWait{2000};
constexpr milliseconds kOptimizerTime{500};  // Monitor::step() also runs the optimizer

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

TEST_CASE("without rank 0 and its hub the other ranks lapse until rank 0 is back") {
  KillableJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(wait_for([&] { return job.status().collected > 20; }));
  const std::string epoch = job.status().epoch;
  job.kill(job.run(0));
  job.kill_hub();
  REQUIRE(wait_for_lapses(job, "one", 2));
  for (const int rank : {1, 2}) CHECK(makes_progress(job.run(rank)));
  job.start(0, launch("one"));
  REQUIRE(in_force(job, 3, 2));
  CHECK(job.status().epoch == epoch);
  run_last_plan(job, 3);
  check(job, "one", 2);
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
