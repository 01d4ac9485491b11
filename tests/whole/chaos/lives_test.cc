// SPDX-License-Identifier: Apache-2.0
// Lives that end: each way in which a rank or a hub can go, or come back, with
// what it gives.
#include <signal.h>

#include <algorithm>

#include "control/debian_version.h"
#include "tests/whole/chaos/evidence.h"
#include "tests/whole/chaos/mortal_job.h"
#include "tools/demo_report/outcome.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPatience{180};
constexpr milliseconds kMaxWait{2000};
constexpr milliseconds kOptimizer{500};  // the rest of the longest call, on this machine
constexpr seconds kLease{10};
constexpr seconds kDropped{15};

const std::vector<std::string> kLong = {"--steps", "100000000", "--step-ms", "10"};

std::string config(bool on, int times, const std::string& more = "") {
  return "{\"wg_distribution\": true, \"dynamic_on\": " + std::string(on ? "true" : "false") +
         ", \"collect_times\": " + std::to_string(times) + more + "}";
}

MortalJob::Start launch(const std::string& name, std::int64_t first = 0, int world = 0) {
  return {name, first, world, kLong};
}

void pause(milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  eventually([&] { return std::chrono::steady_clock::now() > until; }, 2 * time);
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

// Where it is known.
std::string state_of(MortalJob& job, std::size_t rank) {
  const Status status = job.status();
  return rank < status.ranks.size() ? status.ranks[rank].state : "";
}

bool comes_to(MortalJob& job, std::size_t rank, const std::string& state) {
  return eventually([&] { return state_of(job, rank) == state; }, kPatience);
}

bool collects(MortalJob& job) {
  return eventually([&] { return job.status().collected > 20; }, kPatience);
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

bool pending(MortalJob& job, const std::string& why) {
  return eventually(
      [&] {
        const Status status = job.status();
        return status.pending && status.pending->reason.find(why) != std::string::npos;
      },
      kPatience);
}

void check(const MortalJob& job, const std::string& launch, std::size_t lapses = 0) {
  const Evidence found = gather(job, launch);
  CAPTURE(launch, found.breaches, found.slowest, job.logs());
  CHECK(found.breaches.empty());
  CHECK(found.lapses.size() == lapses);
  CHECK(found.longest_call < kMaxWait + kOptimizer);
}

// A last plan, in force on all ranks, that runs to its end.
void come_to_rest(MortalJob& job, std::size_t ranks) {
  const std::size_t before = job.history().size();
  write_text(job.config_path, config(true, 3, ", \"eps\": 2e-8"));
  CAPTURE(job.logs());
  REQUIRE(in_force(job, ranks, before + 1));
  REQUIRE(all_finished(job));
  REQUIRE(eventually([&] { return read_text(job.config_path).find("\"dynamic_on\": false") != std::string::npos; },
                     kPatience));
}

constexpr char kFarFence[] = ", \"lookahead_steps\": 300";

TEST_CASE("a rank that is killed holds no change up and comes back by a resync") {
  MortalJob job(3, config(false, 1));
  job.start_all(launch("one"));
  REQUIRE(all_step(job));
  job.slay(job.life(2));
  write_text(job.config_path, config(true, 1000000));
  REQUIRE(in_force(job, 2));
  CHECK(state_of(job, 2) == "dropped");
  CHECK(steps_on(job.life(0)));
  CHECK(steps_on(job.life(1)));
  job.start(2, launch("one"));
  REQUIRE(in_force(job, 3, 2));
  CHECK(job.history().back().cause == "resync");
  come_to_rest(job, 3);
  check(job, "one");
}

TEST_CASE("a rank killed while it collects comes back and collects what was agreed") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(collects(job));
  job.slay(job.life(1));
  CHECK(steps_on(job.life(0)));
  CHECK(steps_on(job.life(2)));
  job.start(1, launch("one"));
  REQUIRE(comes_to(job, 1, "collecting"));
  come_to_rest(job, 3);
  check(job, "one");
}

TEST_CASE("a resync collects what the plan that it continues has left") {
  MortalJob job(3, config(true, 1500));
  job.start_all(launch("one"));
  REQUIRE(collects(job));
  job.slay(job.life(1));
  job.start(1, launch("one", 5));
  REQUIRE(in_force(job, 3, 2));
  REQUIRE(all_finished(job));
  const auto history = job.history();
  REQUIRE(history.size() == 2);
  CHECK(history[1].finished_step == history[0].effective_step + 1499);
  check(job, "one");
}

TEST_CASE("a rank killed between its promise and the step it was given for is brought in later") {
  MortalJob job(3, config(false, 1));
  job.start_all(launch("one"));
  REQUIRE(all_step(job));
  write_text(job.config_path, config(true, 1000000, kFarFence));
  REQUIRE(eventually([&] { return !job.history().empty() && job.history().back().verdict == "commit"; }));
  job.slay(job.life(1));
  REQUIRE(in_force(job, 2));
  job.start(1, launch("one"));
  REQUIRE(in_force(job, 3, 2));
  come_to_rest(job, 3);
  check(job, "one");
}

TEST_CASE("a rank stopped while a change is made holds it up and no other rank") {
  MortalJob job(3, config(false, 1));
  job.start_all(launch("one"));
  REQUIRE(all_step(job));
  job.freeze(job.life(1));
  pause(seconds(3));
  write_text(job.config_path, config(true, 1000000));
  REQUIRE(pending(job, "rank 1 (not heard for"));
  CHECK(steps_on(job.life(0)));
  CHECK(steps_on(job.life(2)));
  job.thaw(job.life(1));
  REQUIRE(in_force(job, 3));
  come_to_rest(job, 3);
  check(job, "one");
}

TEST_CASE("a rank stopped for longer than its lease goes on off, is named, and is brought in") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(collects(job));
  job.freeze(job.life(1));
  pause(kDropped);
  REQUIRE(comes_to(job, 1, "dropped"));
  CHECK(job.status().ranks[1].error.find("silent") != std::string::npos);
  write_text(job.config_path, config(true, 1000000, ", \"step_interval\": 2"));
  REQUIRE(in_force(job, 2, 2));
  job.thaw(job.life(1));
  REQUIRE(in_force(job, 3, 3));
  CHECK(job.history().back().cause == "resync");
  come_to_rest(job, 3);
  check(job, "one", 1);
}

TEST_CASE("a rank stopped for less than its lease collects on") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(collects(job));
  job.freeze(job.life(1));
  pause(kLease / 2);
  job.thaw(job.life(1));
  pause(seconds(2));
  CHECK(job.history().size() == 1);
  come_to_rest(job, 3);
  check(job, "one");
}

TEST_CASE("a hub that is killed is started again and nobody notices") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(collects(job));
  const std::string epoch = job.status().epoch;
  const auto first = job.hub();
  REQUIRE(first);
  job.slay_hub();
  REQUIRE(eventually([&] { return job.hub() && job.hub() != first; }));
  REQUIRE(eventually([&] { return job.status().epoch == epoch; }, kPatience));
  for (const int rank : {0, 1, 2}) CHECK(steps_on(job.life(rank)));
  REQUIRE(eventually([&] { return state_of(job, 2) == "collecting"; }, kPatience));
  CHECK(job.history().size() == 1);
  come_to_rest(job, 3);
  check(job, "one");
}

TEST_CASE("a change made while no hub runs is decided by the next") {
  MortalJob job(3, config(false, 1));
  job.start_all(launch("one"));
  REQUIRE(all_step(job));
  write_text(job.config_path, config(true, 1000000, kFarFence));
  job.slay_hub();
  REQUIRE(in_force(job, 3));
  write_text(job.config_path, config(true, 1000000, ", \"step_interval\": 2"));
  job.slay_hub();
  write_text(job.config_path, config(true, 1000000, ", \"step_interval\": 3"));
  REQUIRE(eventually([&] { return job.status().step_interval == 3; }, kPatience));
  REQUIRE(in_force(job, 3));
  come_to_rest(job, 3);
  check(job, "one");
}

TEST_CASE("a hub killed again and again holds training up for max_wait at most, and agrees in the end") {
  MortalJob job(3, config(false, 1));
  job.start_all(launch("one"));
  REQUIRE(all_step(job));
  for (int i = 0; i < 8; ++i) {
    write_text(job.config_path, config(true, 1000000, ", \"eps\": 1e-" + std::to_string(5 + i)));
    pause(milliseconds(40 * i));
    job.slay_hub();
  }
  come_to_rest(job, 3);
  const Evidence found = gather(job, "one");
  CAPTURE(found.breaches, found.slowest, job.logs());
  CHECK(found.breaches.empty());
  CHECK(found.longest_call < kMaxWait + kOptimizer);
}

TEST_CASE("a hub that hangs for longer than a lease turns all off, and all on when it goes on") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(collects(job));
  job.signal_hub(SIGSTOP);
  for (const int rank : {0, 1, 2}) CHECK(steps_on(job.life(rank)));
  pause(kLease + seconds(2));
  job.signal_hub(SIGCONT);
  REQUIRE(in_force(job, 3, 2));
  CHECK(job.history().back().cause == "resync");
  come_to_rest(job, 3);
  check(job, "one", 3);
}

TEST_CASE("a hub killed with all that it knew leaves a new epoch that goes on with the plan") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(collects(job));
  const std::string before = job.status().epoch;
  job.slay_hub(true);
  REQUIRE(eventually([&] { return !job.status().epoch.empty() && job.status().epoch != before; }, kPatience));
  for (const int rank : {0, 1, 2}) CHECK(steps_on(job.life(rank)));
  REQUIRE(in_force(job, 3));
  CHECK(job.history().back().revision > Revision{1});
  come_to_rest(job, 3);
  check(job, "one");
}

TEST_CASE("a rank that finishes early is not waited for") {
  MortalJob job(3, config(false, 1));
  job.start(0, launch("one"));
  job.start(1, {"one", 0, 0, {"--steps", "100", "--step-ms", "10"}});
  job.start(2, launch("one"));
  REQUIRE(job.wait(job.life(1), kPatience) == 0);
  REQUIRE(comes_to(job, 1, "left"));
  come_to_rest(job, 2);
  CHECK(job.history().size() == 1);
  check(job, "one");
}

TEST_CASE("a rank that starts late is waited for by the change and not by training") {
  MortalJob job(2, config(false, 1));
  job.start(0, launch("one"));
  REQUIRE(
      eventually([&] { return !job.status().ranks.empty() && job.status().ranks[0].step > 20; }, kPatience));
  write_text(job.config_path, config(true, 3));
  REQUIRE(pending(job, "waiting for rank 1 of 2 to create its Monitor"));
  CHECK(steps_on(job.life(0)));
  job.start(1, launch("one"));
  REQUIRE(in_force(job, 2));
  REQUIRE(all_finished(job));
  CHECK(job.history()[0].effective_step > 20);
  check(job, "one");
}

TEST_CASE("after rank 0 has been killed the others agree without it, and it comes back") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(collects(job));
  job.slay(job.life(0));
  write_text(job.config_path, config(true, 1000000, ", \"step_interval\": 2"));
  REQUIRE(in_force(job, 2, 2));
  job.start(0, launch("one"));
  REQUIRE(in_force(job, 3, 3));
  come_to_rest(job, 3);
  check(job, "one");
}

TEST_CASE("without rank 0 and its hub the others go off by their lease until rank 0 is back") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(collects(job));
  const std::string epoch = job.status().epoch;
  job.slay(job.life(0));
  job.slay_hub();
  pause(kLease + seconds(2));
  for (const int rank : {1, 2}) CHECK(steps_on(job.life(rank)));
  job.start(0, launch("one"));
  REQUIRE(in_force(job, 3, 2));
  CHECK(job.status().epoch == epoch);
  come_to_rest(job, 3);
  check(job, "one", 2);
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
    const RowsByStep rows = rows_in_files(job.output_dir("one"), "grad_reduced")[rank];
    CHECK(rows.size() == 400);
    CHECK(rows.begin()->first == begun);
  }
  CHECK(read_text(job.config_path) == config(false, 400));
  check(job, "one");
}

TEST_CASE("when a job restarts after all were killed the file decides how the new epoch begins") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(collects(job));
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

TEST_CASE("a process left over from the old launch stays in its epoch") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(collects(job));
  Life& left_over = job.life(1);
  job.slay(job.life(0));
  job.slay(job.life(2));
  job.start_all(launch("two", 10));
  REQUIRE(in_force(job, 3));
  CHECK(steps_on(left_over));
  job.slay(left_over);
  come_to_rest(job, 3);
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
  come_to_rest(job, 3);
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
  REQUIRE(pending(job,
                  "rank 2 starts at step 90, but a lower rank starts at step 100: all ranks need the same "
                  "start_iteration"));
  CHECK(job.history()[0].verdict.empty());
  for (const int rank : {0, 1, 2}) CHECK(steps_on(job.life(rank)));
}

TEST_CASE("a second process of a rank is refused while the first lives and takes its place after") {
  MortalJob job(3, config(true, 1000000));
  job.start_all(launch("one"));
  REQUIRE(collects(job));
  Life& first = job.life(1);
  Life& second = job.start(1, launch("one"));
  const std::string claim = "pid " + std::to_string(second.pid) + " on ";
  REQUIRE(eventually([&] { return job.status().ranks[1].error.find(claim) != std::string::npos; }, kPatience));
  CHECK(job.status().ranks[1].pid == first.pid);
  CHECK(steps_on(first));
  CHECK(steps_on(second));
  job.slay(first);
  REQUIRE(eventually([&] { return job.status().ranks[1].pid == second.pid; }, kPatience));
  come_to_rest(job, 3);
  check(job, "one");
}

}  // namespace
}  // namespace gradmon
