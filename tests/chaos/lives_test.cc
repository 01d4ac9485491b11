// SPDX-License-Identifier: Apache-2.0
// Lives that end: each way in which a rank can go, or come back, with what it
// gives.
#include <algorithm>

#include "control/debian_version.h"
#include "tests/chaos/evidence.h"
#include "tests/chaos/mortal_job.h"
#include "tools/demo_report/outcome.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPatience{180};
constexpr seconds kFenceTimeout{3};

const std::vector<std::string> kLong = {"--steps", "100000000", "--step-ms", "10"};

std::string config(bool on, int times, const std::string& more = "") {
  return "{\"wg_distribution\": true, \"fence_timeout\": 3, \"dynamic_on\": " +
         std::string(on ? "true" : "false") + ", \"collect_times\": " + std::to_string(times) + more + "}";
}

MortalJob::Start launch(const std::string& name, std::int64_t first = 0, int world = 0) {
  return {name, first, world, kLong};
}

bool all_step(MortalJob& job, std::int64_t beyond = 5) {
  return eventually(
      [&] {
        const Status status = job.status();
        return !status.ranks.empty() &&
               std::all_of(status.ranks.begin(), status.ranks.end(),
                           [&](const RankStatus& rank) { return rank.step > beyond; });
      },
      kPatience);
}

// The newest change is committed, and so many ranks have put it in force.
bool in_force(MortalJob& job, std::size_t ranks, std::size_t at_least_entries = 1) {
  return eventually(
      [&] {
        const auto history = job.history();
        return history.size() >= at_least_entries && history.back().verdict == "commit" &&
               history.back().applied.size() == ranks;
      },
      kPatience);
}

bool all_finished(MortalJob& job) {
  return eventually(
      [&] {
        const auto history = job.history();
        return !history.empty() && history.back().finished_step > 0;
      },
      kPatience);
}

bool steps_on(const Life& life) {
  const auto size = std::filesystem::file_size(life.step_log);
  return eventually([&] { return std::filesystem::file_size(life.step_log) > size + 100; }, kPatience);
}

bool says(const Life& life, const std::string& text) {
  return eventually([&] { return read_text(life.log).find(text) != std::string::npos; }, kPatience);
}

bool pending(MortalJob& job, const std::string& why) {
  return eventually(
      [&] {
        const Status status = job.status();
        return status.pending && status.pending->reason.find(why) != std::string::npos;
      },
      kPatience);
}

void check(const MortalJob& job, const std::string& launch, std::size_t missed = 0) {
  const Evidence found = gather(job, launch);
  CAPTURE(launch, found.breaches, found.slowest, job.logs());
  CHECK(found.breaches.empty());
  CHECK(found.missed.size() == missed);
  CHECK(found.longest_call < kFenceTimeout + seconds(2));
}

// Rank 1 of three has promised and hears no more: not rank 0, not the register.
// The change is committed all the same.
void cut_off_after_its_promise(MortalJob& job, const std::string& change) {
  job.freeze(job.life(2));
  write_text(job.config_path, change);
  REQUIRE(pending(job, "waiting for the answer of rank 2"));
  job.cut_register(1);
  job.links().set(1, {milliseconds(0), milliseconds(0), false, true});
  job.thaw(job.life(2));
}

bool stands_at_its_fence(MortalJob& job) {
  return eventually([&] { return job.status().ranks[1].state == "waiting"; }, kPatience);
}

void reconnect(MortalJob& job) {
  job.restore_register(1);
  job.links().set(1, {});
}

constexpr char kFarFence[] = ", \"lookahead_steps\": 300";

TEST_CASE("a rank killed while nothing is collected holds changes up until it comes back") {
  MortalJob job(3, config(false, 1));
  job.start_all(launch("one"));
  REQUIRE(all_step(job));
  job.slay(job.life(2));
  write_text(job.config_path, config(true, 3));
  REQUIRE(pending(job, "rank 2"));
  REQUIRE(eventually([&] { return job.history().size() > 1; }, kPatience));
  CHECK(job.history()[0].verdict == "abort");
  CHECK(steps_on(job.life(0)));
  CHECK(steps_on(job.life(1)));
  job.start(2, launch("one"));
  REQUIRE(in_force(job, 3));
  REQUIRE(all_finished(job));
  check(job, "one");
}

TEST_CASE("a rank killed while it collects comes back and collects what was agreed") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(eventually([&] { return job.status().collected > 20; }, kPatience));
  job.slay(job.life(1));
  CHECK(steps_on(job.life(0)));
  CHECK(steps_on(job.life(2)));
  job.start(1, launch("one"));
  REQUIRE(eventually([&] { return job.status().ranks[1].state == "collecting"; }, kPatience));
  write_text(job.config_path, config(true, 4, ", \"step_interval\": 2"));
  REQUIRE(in_force(job, 3, 2));
  REQUIRE(all_finished(job));
  check(job, "one");
}

TEST_CASE("a rank killed at its fence comes back to what the register says") {
  MortalJob job(3, config(false, 1));
  job.start_all(launch("one"));
  REQUIRE(all_step(job));
  cut_off_after_its_promise(job, config(true, 3, kFarFence));
  REQUIRE(stands_at_its_fence(job));
  job.slay(job.life(1));
  reconnect(job);
  job.start(1, launch("one"));
  REQUIRE(in_force(job, 3));
  REQUIRE(all_finished(job));
  check(job, "one");
}

TEST_CASE("a rank stopped at its fence for longer than the time-out does not count its pause") {
  MortalJob job(3, config(false, 1));
  job.start_all(launch("one"));
  REQUIRE(all_step(job));
  cut_off_after_its_promise(job, config(true, 3, kFarFence));
  REQUIRE(stands_at_its_fence(job));
  job.freeze(job.life(1));
  const auto until = std::chrono::steady_clock::now() + kFenceTimeout + seconds(1);
  REQUIRE(eventually([&] { return std::chrono::steady_clock::now() > until; }));
  reconnect(job);
  job.thaw(job.life(1));
  REQUIRE(in_force(job, 3));
  REQUIRE(all_finished(job));
  check(job, "one");
}

TEST_CASE("a rank stopped while a change is made holds it up and no other rank") {
  MortalJob job(3, config(false, 1));
  job.start_all(launch("one"));
  REQUIRE(all_step(job));
  job.freeze(job.life(1));
  write_text(job.config_path, config(true, 3));
  REQUIRE(eventually([&] { return job.history().size() > 1; }, kPatience));
  CHECK(steps_on(job.life(0)));
  CHECK(steps_on(job.life(2)));
  job.thaw(job.life(1));
  REQUIRE(in_force(job, 3));
  REQUIRE(all_finished(job));
  check(job, "one");
}

TEST_CASE("a rank cut off from rank 0 and register goes on after the time-out and says what it missed") {
  MortalJob job(3, config(false, 1));
  job.start_all(launch("one"));
  REQUIRE(all_step(job));
  cut_off_after_its_promise(job, config(true, 1000000, kFarFence));
  REQUIRE(says(job.life(1), "going on with the old plan"));
  REQUIRE(in_force(job, 2));
  const auto effective = job.history()[0].effective_step;
  REQUIRE(eventually([&] { return job.status().ranks[1].step > effective + 1; }, kPatience));
  reconnect(job);
  REQUIRE(in_force(job, 3, 2));
  const auto history = job.history();
  CHECK(history[0].applied.count(1) == 0);
  CHECK(history[1].cause == "resync");
  CHECK(history[1].by == "rank 1 missed revision 1");
  write_text(job.config_path, config(true, 2));
  REQUIRE(in_force(job, 3, 3));
  REQUIRE(all_finished(job));
  check(job, "one", 1);
}

TEST_CASE("a rank that finishes early is not waited for") {
  MortalJob job(3, config(false, 1));
  job.start(0, launch("one"));
  job.start(1, {"one", 0, 0, {"--steps", "100", "--step-ms", "10"}});
  job.start(2, launch("one"));
  REQUIRE(job.wait(job.life(1), kPatience) == 0);
  REQUIRE(eventually([&] { return job.status().ranks[1].state == "left"; }, kPatience));
  write_text(job.config_path, config(true, 3));
  REQUIRE(in_force(job, 2));
  REQUIRE(all_finished(job));
  CHECK(job.history().size() == 1);
  check(job, "one");
}

TEST_CASE("a rank that starts late is waited for by the change and not by training") {
  MortalJob job(2, config(false, 1));
  job.start(0, launch("one"));
  REQUIRE(
      eventually([&] { return !job.status().ranks.empty() && job.status().ranks[0].step > 20; }, kPatience));
  write_text(job.config_path, config(true, 3));
  REQUIRE(pending(job, "waiting for rank 1"));
  CHECK(steps_on(job.life(0)));
  job.start(1, launch("one"));
  REQUIRE(in_force(job, 2));
  REQUIRE(all_finished(job));
  CHECK(job.history()[0].effective_step > 20);
  check(job, "one");
}

TEST_CASE("after rank 0 has been killed the plan in force runs out and the others train to their end") {
  MortalJob job(3, config(false, 1));
  job.start(0, launch("one"));
  for (const int rank : {1, 2}) job.start(rank, {"one", 0, 0, {"--steps", "3000", "--step-ms", "5"}});
  REQUIRE(all_step(job));
  write_text(job.config_path, config(true, 400));
  REQUIRE(in_force(job, 3));
  const auto begun = job.history()[0].effective_step;
  job.slay(job.life(0));
  for (const int rank : {1, 2}) {
    CAPTURE(rank, job.logs());
    CHECK(job.wait(job.life(rank), kPatience) == 0);
    const RowsByStep rows = rows_in_files(job.output_dir(rank), "grad_reduced")[rank];
    CHECK(rows.size() == 400);
    CHECK(rows.begin()->first == begun);
  }
  check(job, "one");
}

TEST_CASE("a change that rank 0 leaves open when it is killed is closed by the others") {
  MortalJob job(3, config(false, 1));
  job.start(0, launch("one"));
  for (const int rank : {1, 2}) job.start(rank, {"one", 0, 0, {"--steps", "2000", "--step-ms", "5"}});
  REQUIRE(all_step(job));
  job.freeze(job.life(2));
  write_text(job.config_path, config(true, 3, kFarFence));
  REQUIRE(pending(job, "waiting for the answer of rank 2"));
  job.slay(job.life(0));
  job.thaw(job.life(2));
  for (const int rank : {1, 2}) CHECK(job.wait(job.life(rank), kPatience) == 0);
  const Evidence found = gather(job, "one");
  CHECK(found.commits == 0);
  CHECK(found.aborts == 1);
  check(job, "one");
}

TEST_CASE("when a job restarts after rank 0 was killed the file decides how the new epoch begins") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(eventually([&] { return job.status().collected > 20; }, kPatience));
  const std::string before = job.status().epoch;
  job.slay_all();
  job.start_all(launch("two", 15));
  REQUIRE(in_force(job, 3));
  CHECK(job.status().epoch != before);
  CHECK(job.history()[0].cause == "start");
  CHECK(job.history()[0].effective_step > 15);
  job.slay_all();
  write_text(job.config_path, config(false, 3));
  job.start_all(launch("three", 30));
  REQUIRE(all_step(job, 40));
  CHECK(job.history().empty());
  CHECK(job.status().state == "off");
  check(job, "one");
  check(job, "two");
}

TEST_CASE("a process left over from the old launch stays in its epoch and is named by the new rank 0") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(eventually([&] { return job.status().collected > 50; }, kPatience));
  Life& left_over = job.life(1);
  job.slay(job.life(0));
  job.slay(job.life(2));
  job.start_all(launch("two", 10));
  REQUIRE(in_force(job, 3));
  REQUIRE(eventually(
      [&] {
        for (const std::string& warning : job.status().warnings) {
          if (warning.rfind("rank 1 of an earlier launch", 0) == 0) return true;
        }
        return false;
      },
      kPatience));
  CHECK(steps_on(left_over));
  write_text(job.config_path, config(true, 3));
  REQUIRE(in_force(job, 3, 2));
  REQUIRE(all_finished(job));
  job.slay(left_over);
  check(job, "one");
  check(job, "two");
}

TEST_CASE("a rank that comes back as its launch ends still goes through what that has agreed") {
  MortalJob job(2, config(true, 2));
  job.start_all(launch("one"));
  REQUIRE(all_finished(job));
  REQUIRE(all_step(job, 300));
  write_text(job.config_path, config(true, 1000000));
  REQUIRE(in_force(job, 2, 2));
  job.slay(job.life(1));
  Life& came_back = job.start(1, launch("one"));
  const auto steps = [&] {
    const std::string log = read_text(came_back.step_log);
    return std::count(log.begin(), log.end(), '\n');
  };
  REQUIRE(eventually([&] { return steps() > 5; }, kPatience));
  const std::int64_t agreed = job.history()[1].effective_step;
  job.slay(job.life(0));
  job.start_all(launch("two", 100));
  REQUIRE(in_force(job, 2));
  REQUIRE(steps() < agreed);  // or the test shows nothing
  REQUIRE(eventually([&] { return steps() > agreed + 50; }, kPatience));
  job.slay(came_back);
  job.slay_all();
  check(job, "one");
  check(job, "two");
}

TEST_CASE("a restarted job may have fewer ranks or more") {
  MortalJob job(3, config(true, 3));
  job.start_all(launch("one", 0, 2));
  REQUIRE(in_force(job, 2));
  REQUIRE(all_finished(job));
  job.slay_all();
  job.start_all(launch("two", 100, 3));
  REQUIRE(all_step(job, 105));
  write_text(job.config_path, config(true, 3));
  REQUIRE(in_force(job, 3));
  REQUIRE(all_finished(job));
  check(job, "one");
  check(job, "two");
}

TEST_CASE("where the first step differs nothing is armed and the status names the rank") {
  MortalJob job(3, config(false, 3));
  job.start(0, launch("one", 100));
  job.start(1, launch("one", 100));
  job.start(2, launch("one", 90));
  REQUIRE(all_step(job, -1));
  write_text(job.config_path, config(true, 3));
  REQUIRE(pending(job, "rank 2 starts at step 90, rank 0 at step 100"));
  CHECK(job.history()[0].verdict.empty());
  for (const int rank : {0, 1, 2}) CHECK(steps_on(job.life(rank)));
}

TEST_CASE("a second process of a rank is refused while the first lives and takes its place after") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(eventually([&] { return job.status().collected > 20; }, kPatience));
  Life& first = job.life(1);
  Life& second = job.start(1, launch("one"));
  REQUIRE(says(second, "is taken by pid " + std::to_string(first.pid)));
  CHECK(steps_on(first));
  job.slay(first);
  REQUIRE(eventually([&] { return job.status().ranks[1].pid == second.pid; }, kPatience));
  write_text(job.config_path, config(true, 3));
  REQUIRE(in_force(job, 3, 2));
  REQUIRE(all_finished(job));
  check(job, "one");
}

}  // namespace
}  // namespace gradmon
