// SPDX-License-Identifier: Apache-2.0
// Each way in which a rank or a hub can end, hang or come back, and its effect on the
// plan and on training.
#include <signal.h>

#include <algorithm>
#include <thread>

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

bool all_ranks_passed(KillableJob& job, std::int64_t beyond = 5) {
  return eventually(
      [&] {
        const Status status = job.status();
        return !status.ranks.empty() &&
               std::all_of(status.ranks.begin(), status.ranks.end(),
                           [&](const RankStatus& rank) { return rank.step > beyond; });
      },
      kTimeout);
}

// Empty if the status does not list the rank.
std::string state_of(KillableJob& job, std::size_t rank) {
  const Status status = job.status();
  return rank < status.ranks.size() ? status.ranks[rank].state : "";
}

bool wait_for_state(KillableJob& job, std::size_t rank, const std::string& state) {
  return eventually([&] { return state_of(job, rank) == state; }, kTimeout);
}

// Waits until the hub has not heard the rank for `time`.
bool wait_until_silent(KillableJob& job, std::size_t rank, milliseconds time) {
  return eventually(
      [&] {
        const Status status = job.status();
        return rank < status.ranks.size() && status.ranks[rank].last_seen_ms >= time.count();
      },
      kTimeout);
}

// Waits until `count` processes of the launch have noted that they lapsed.
bool wait_for_lapses(const KillableJob& job, const std::string& launch, std::size_t count) {
  return eventually(
      [&] {
        std::size_t lapsed = 0;
        for (const auto& [rank, directory] : run_directories(job.output_dir(launch))) {
          const std::string notes = read_text(directory / "switches.jsonl");
          if (notes.find("\"revision\":0,") != std::string::npos) ++lapsed;
        }
        return lapsed >= count;
      },
      kTimeout);
}

bool wait_until_collecting(KillableJob& job) {
  return eventually([&] { return job.status().collected > 20; }, kTimeout);
}

// Waits until the newest change is committed and exactly `ranks` ranks have applied it.
bool in_force(KillableJob& job, std::size_t ranks, std::size_t at_least_entries = 1) {
  return eventually(
      [&] {
        const auto history = job.history();
        return history.size() >= at_least_entries && history.back().verdict == "commit" &&
               history.back().applied.size() == ranks;
      },
      kTimeout);
}

bool all_finished(KillableJob& job) {
  return eventually(
      [&] {
        const auto history = job.history();
        return !history.empty() && history.back().finished_step > 0;
      },
      kTimeout);
}

bool makes_progress(const RankRun& run) {
  const auto size = std::filesystem::file_size(run.step_log);
  return eventually([&] { return std::filesystem::file_size(run.step_log) > size + 100; }, kTimeout);
}

bool wait_until_pending(KillableJob& job, const std::string& why) {
  return eventually(
      [&] {
        const Status status = job.status();
        return status.pending && status.pending->reason.find(why) != std::string::npos;
      },
      kTimeout);
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
  REQUIRE(eventually(
      [&] { return read_text(job.config_path).find("\"dynamic_on\": false") != std::string::npos; },
      kTimeout));
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

TEST_CASE("a killed rank delays no change and rejoins by a resync") {
  IdleJob job;
  job.kill(job.run(2));
  write_text(job.config_path, config(true, 1000000));
  REQUIRE(in_force(job, 2));
  CHECK(state_of(job, 2) == "dropped");
  CHECK(makes_progress(job.run(0)));
  CHECK(makes_progress(job.run(1)));
  job.start(2, launch("one"));
  REQUIRE(in_force(job, 3, 2));
  CHECK(job.history().back().cause == "resync");
  end_well(job);
}

TEST_CASE("a rank killed while it collects is restarted and collects the agreed steps") {
  CollectingJob job;
  job.kill(job.run(1));
  CHECK(makes_progress(job.run(0)));
  CHECK(makes_progress(job.run(2)));
  job.start(1, launch("one"));
  REQUIRE(wait_for_state(job, 1, "collecting"));
  end_well(job);
}

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

TEST_CASE("a stopped rank delays a change but no other rank") {
  IdleJob job;
  job.stop(job.run(1));
  REQUIRE(wait_until_silent(job, 1, seconds(3)));
  write_text(job.config_path, config(true, 1000000));
  REQUIRE(wait_until_pending(job, "rank 1 (not heard for"));
  CHECK(makes_progress(job.run(0)));
  CHECK(makes_progress(job.run(2)));
  job.resume(job.run(1));
  REQUIRE(in_force(job, 3));
  end_well(job);
}

TEST_CASE("a rank stopped for longer than its lease lapses and is reported and rejoins by a resync") {
  CollectingJob job;
  job.stop(job.run(1));
  REQUIRE(wait_for_state(job, 1, "dropped"));
  CHECK(job.status().ranks.at(1).error.find("silent") != std::string::npos);
  write_text(job.config_path, config(true, 1000000, ", \"step_interval\": 2"));
  REQUIRE(in_force(job, 2, 2));
  job.resume(job.run(1));
  REQUIRE(in_force(job, 3, 3));
  CHECK(job.history().back().cause == "resync");
  end_well(job, 1);
}

TEST_CASE("a rank stopped for less than its lease continues to collect") {
  CollectingJob job;
  job.stop(job.run(1));
  REQUIRE(wait_until_silent(job, 1, kLease / 2));
  job.resume(job.run(1));
  const std::int64_t collected = job.status().collected;
  REQUIRE(eventually([&] { return job.status().collected > collected + 100; }, kTimeout));
  CHECK(job.history().size() == 1);
  end_well(job);
}

TEST_CASE("a killed hub is started again and neither the plan nor training changes") {
  CollectingJob job;
  const std::string epoch = job.status().epoch;
  const auto first = job.hub();
  REQUIRE(first);
  job.kill_hub();
  REQUIRE(eventually([&] { return job.hub() && job.hub() != first; }));
  REQUIRE(eventually([&] { return job.status().epoch == epoch; }, kTimeout));
  for (const int rank : {0, 1, 2}) CHECK(makes_progress(job.run(rank)));
  REQUIRE(eventually([&] { return state_of(job, 2) == "collecting"; }, kTimeout));
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
  REQUIRE(eventually([&] { return job.status().step_interval == 3; }, kTimeout));
  REQUIRE(in_force(job, 3));
  end_well(job);
}

TEST_CASE("a change that a killed hub has not read takes effect through the next hub") {
  IdleJob job;
  REQUIRE(job.hub().has_value());
  job.signal_hub(SIGSTOP);
  write_text(job.config_path, config(true, 1000000));
  job.kill_hub();
  REQUIRE(in_force(job, 3));
  end_well(job);
}

TEST_CASE("a hub killed again and again delays training by max_wait at most and a last plan still commits") {
  IdleJob job;
  for (int i = 0; i < 8; ++i) {
    write_text(job.config_path, config(true, 1000000, ", \"eps\": 1e-" + std::to_string(5 + i)));
    std::this_thread::sleep_for(milliseconds(40 * i));  // not a wait: kills at different times are under test
    job.kill_hub();
  }
  run_last_plan(job, 3);
  const Audit found = audit_launch(job, "one");
  CAPTURE(found.violations, found.slowest, job.logs());
  CHECK(found.violations.empty());
  CHECK(found.longest_call < kMaxWait + kOptimizerTime);
}

TEST_CASE("while a hub hangs for longer than a lease all ranks lapse and afterwards all rejoin") {
  CollectingJob job;
  job.signal_hub(SIGSTOP);
  for (const int rank : {0, 1, 2}) CHECK(makes_progress(job.run(rank)));
  REQUIRE(wait_for_lapses(job, "one", 3));
  job.signal_hub(SIGCONT);
  REQUIRE(in_force(job, 3, 2));
  CHECK(job.history().back().cause == "resync");
  end_well(job, 3);
}

TEST_CASE("a hub killed together with its directory is followed by a new epoch that continues the plan") {
  CollectingJob job;
  const std::string before = job.status().epoch;
  job.kill_hub(true);
  REQUIRE(eventually([&] { return !job.status().epoch.empty() && job.status().epoch != before; }, kTimeout));
  for (const int rank : {0, 1, 2}) CHECK(makes_progress(job.run(rank)));
  REQUIRE(in_force(job, 3));
  CHECK(job.history().back().revision > Revision{1});
  end_well(job);
}

TEST_CASE("no change waits for a rank that has finished") {
  KillableJob job(3, config(false, 1));
  job.start(0, launch("one"));
  job.start(1, {"one", 0, 0, {"--steps", "100", "--step-ms", "10"}});
  job.start(2, launch("one"));
  REQUIRE(job.wait(job.run(1), kTimeout) == 0);
  REQUIRE(wait_for_state(job, 1, "left"));
  run_last_plan(job, 2);
  CHECK(job.history().size() == 1);
  check(job, "one");
}

TEST_CASE("a change waits for a rank that starts late and training does not") {
  KillableJob job(2, config(false, 1));
  job.start(0, launch("one"));
  REQUIRE(
      eventually([&] { return !job.status().ranks.empty() && job.status().ranks[0].step > 20; }, kTimeout));
  write_text(job.config_path, config(true, 3));
  REQUIRE(wait_until_pending(job, "waiting for rank 1 of 2 to create its Monitor"));
  CHECK(makes_progress(job.run(0)));
  job.start(1, launch("one"));
  REQUIRE(in_force(job, 2));
  REQUIRE(all_finished(job));
  CHECK(job.history().at(0).effective_step > 20);
  check(job, "one");
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

TEST_CASE("if ranks begin at different steps no plan is decided and the status names the rank") {
  KillableJob job(3, config(false, 3));
  job.start(0, launch("one", 100));
  job.start(1, launch("one", 100));
  job.start(2, launch("one", 90));
  REQUIRE(all_ranks_passed(job, -1));
  write_text(job.config_path, config(true, 3));
  REQUIRE(wait_until_pending(
      job,
      "rank 2 starts at step 90, but a lower rank starts at step 100: all ranks need the same "
      "start_iteration"));
  CHECK(job.history().at(0).verdict.empty());
  for (const int rank : {0, 1, 2}) CHECK(makes_progress(job.run(rank)));
}

TEST_CASE("a second process of a rank is refused while the first runs and replaces it afterwards") {
  CollectingJob job;
  RankRun& first = job.run(1);
  RankRun& second = job.start(1, launch("one"));
  const std::string claim = "pid " + std::to_string(second.pid) + " on ";
  const auto is_claimed = [&] { return job.status().ranks.at(1).error.find(claim) != std::string::npos; };
  REQUIRE(eventually(is_claimed, kTimeout));
  CHECK(job.status().ranks.at(1).pid == first.pid);
  CHECK(makes_progress(first));
  CHECK(makes_progress(second));
  job.kill(first);
  REQUIRE(eventually([&] { return job.status().ranks.at(1).pid == second.pid; }, kTimeout));
  end_well(job);
}

}  // namespace
}  // namespace gradmon
