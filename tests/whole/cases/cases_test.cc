// SPDX-License-Identifier: Apache-2.0
// The six cases of the dynamic mode, by real ranks: which steps were collected,
// and what the file says afterwards, byte for byte.
#include <algorithm>

#include "control/debian_version.h"
#include "tests/support/real_job.h"
#include "tools/demo_report/outcome.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using StepList = std::vector<std::int64_t>;

StepList from(std::int64_t first, std::int64_t count, std::int64_t interval = 1) {
  StepList steps;
  for (std::int64_t i = 0; i < count; ++i) steps.push_back(first + i * interval);
  return steps;
}

// The steps of every rank, which must be the same on all.
StepList steps_of(const RealJob& job, int world) {
  const auto found = rows_in_files(job.output_dir, "grad_reduced");
  REQUIRE(found.size() == static_cast<std::size_t>(world));
  std::vector<StepList> lists;
  for (const auto& [rank, steps] : found) {
    StepList list;
    for (const auto& [step, rows] : steps) list.push_back(step);
    lists.push_back(std::move(list));
  }
  for (const StepList& list : lists) REQUIRE(list == lists.front());
  return lists.front();
}

// Whether every rank has written rows of the step.
bool on_disk(const RealJob& job, int world, std::int64_t step) {
  const auto found = rows_in_files(job.output_dir, "grad_reduced");
  return found.size() == static_cast<std::size_t>(world) &&
         std::all_of(found.begin(), found.end(),
                     [&](const auto& rank) { return rank.second.count(step) != 0; });
}

// A file as a person would write it, with a word for `dynamic_on`.
std::string config(const std::string& dynamic_on, int times, const std::string& more = "") {
  return "{\n    \"targets\": {},\r\n\t\"wg_distribution\" : true,\n    \"dynamic_on\":" + dynamic_on +
         ", \"collect_times\": " + std::to_string(times) + more + "}";
}

// What became of the changes: an attempt that was aborted, since a rank did not answer in
// time, is not told.
std::vector<HistoryEntry> commits(RealJob& job) {
  std::vector<HistoryEntry> found;
  for (HistoryEntry& entry : job.history()) {
    if (entry.verdict == "commit") found.push_back(std::move(entry));
  }
  return found;
}

// Until so many changes have been committed, the last has run to its end on all ranks, and
// the file has been written back.
bool finished(RealJob& job, std::size_t changes, const std::string& file) {
  return eventually(
      [&] {
        const auto made = commits(job);
        const Status now = job.status();
        return job.config_text() == file && now.reason == "finished" && made.size() == changes &&
               now.revision == made.back().revision;
      },
      std::chrono::seconds(60));
}

const std::vector<std::string> kLong = {"--steps", "100000000", "--step-ms", "5"};

TEST_CASE("case 1 static mode ignores dynamic_on and follows start_step and step_interval") {
  RealJob job(
      {2, config("true", 3, ", \"start_step\": 4, \"step_interval\": 3"), {"--steps", "30"}, "", false});
  REQUIRE(job.wait() == 0);
  REQUIRE(steps_of(job, 2) == from(4, 3, 3));
  REQUIRE(job.config_text() == config("true", 3, ", \"start_step\": 4, \"step_interval\": 3"));
}

TEST_CASE("case 1 static mode collects the very first step") {
  RealJob job({2, config("false", 2), {"--steps", "5"}, "", false});
  REQUIRE(job.wait() == 0);
  REQUIRE(steps_of(job, 2) == from(0, 2));
}

TEST_CASE("case 2 starting off leaves no rows and no rank directories") {
  RealJob job({2, config("false", 3), {"--steps", "60", "--step-ms", "2"}, "", true});
  REQUIRE(job.wait() == 0);
  REQUIRE(run_directories(job.output_dir).empty());
  REQUIRE(job.config_text() == config("false", 3));
}

TEST_CASE("case 3 starting on collects from step 1 and writes false back") {
  RealJob job({2, config("true", 3), {"--steps", "400", "--step-ms", "4"}, "", true});
  REQUIRE(job.wait() == 0);
  REQUIRE(steps_of(job, 2) == from(1, 3));
  REQUIRE(job.config_text() == config("false", 3));
}

TEST_CASE("case 4 turned on in mid run collects from the agreed step") {
  RealJob job({2, config("false", 3), kLong, "", true});
  REQUIRE(eventually([&] { return job.status().ranks.size() == 2 && job.status().ranks[1].step > 10; }));
  write_text(job.config_path, config("true", 4));
  REQUIRE(finished(job, 1, config("false", 4)));
  const auto history = commits(job);
  REQUIRE(history.size() == 1);
  REQUIRE(history[0].effective_step > 10);
  REQUIRE(steps_of(job, 2) == from(history[0].effective_step, 4));
}

TEST_CASE("case 5 an edit while it collects begins to count from 0 at the agreed step") {
  RealJob job({2, config("true", 1000000), kLong, "", true});
  REQUIRE(eventually([&] { return job.status().collected > 5; }));
  write_text(job.config_path, config("true", 3, ", \"step_interval\": 2"));
  REQUIRE(finished(job, 2, config("false", 3, ", \"step_interval\": 2")));
  const auto history = commits(job);
  REQUIRE(history.size() == 2);
  StepList expected = from(1, history[1].effective_step - 1);
  for (const std::int64_t step : from(history[1].effective_step, 3, 2)) expected.push_back(step);
  REQUIRE(steps_of(job, 2) == expected);
}

TEST_CASE("case 5 collect_times 0 stops at the agreed step and the file says false") {
  RealJob job({2, config("true", 1000000), kLong, "", true});
  REQUIRE(eventually([&] { return job.status().collected > 5; }));
  write_text(job.config_path, config("true", 0));
  REQUIRE(finished(job, 2, config("false", 0)));
  REQUIRE(steps_of(job, 2) == from(1, commits(job)[1].effective_step - 1));
}

TEST_CASE("case 5 dynamic_on false stops at the agreed step") {
  RealJob job({2, config("true", 1000000), kLong, "", true});
  REQUIRE(eventually([&] { return job.status().collected > 5; }));
  write_text(job.config_path, config("false", 1000000));
  REQUIRE(eventually([&] { return job.status().state == "off"; }));
  REQUIRE(job.wait_for_changes(2));
  const auto stopped = commits(job)[1].effective_step;
  REQUIRE(eventually([&] { return on_disk(job, 2, stopped - 1); }));  // What ends the job ends the writers.
  job.end();
  REQUIRE(steps_of(job, 2) == from(1, stopped - 1));
  REQUIRE(job.config_text() == config("false", 1000000));
}

TEST_CASE("case 6 after the end the same content saved with true starts again from 0") {
  RealJob job({2, config("true", 2), kLong, "", true});
  REQUIRE(eventually([&] { return job.config_text() == config("false", 2); }));
  write_text(job.config_path, config("true", 2));
  REQUIRE(finished(job, 2, config("false", 2)));
  StepList expected = from(1, 2);
  for (const std::int64_t step : from(commits(job)[1].effective_step, 2)) expected.push_back(step);
  REQUIRE(steps_of(job, 2) == expected);
}

TEST_CASE("a rank that joins 5 s late holds the others for max_wait and begins at the same step as they") {
  RealJob job({3,
               config("true", 3),
               {"--uncoupled", "--steps", "3000", "--step-ms", "4"},
               "if [ $RANK = 2 ]; then sleep 5; fi;",
               true});
  REQUIRE(job.wait() == 0);
  const StepList steps = steps_of(job, 3);
  REQUIRE(steps.front() > 1);
  REQUIRE(steps == from(steps.front(), 3));
  REQUIRE(job.config_text() == config("false", 3));
}

TEST_CASE("start_iteration 100 counts steps from there in both modes") {
  RealJob dynamic(
      {2, config("true", 2), {"--start-iteration", "100", "--steps", "300", "--step-ms", "4"}, "", true});
  REQUIRE(dynamic.wait() == 0);
  REQUIRE(steps_of(dynamic, 2) == from(101, 2));
  RealJob fixed({2,
                 config("true", 2, ", \"start_step\": 98, \"step_interval\": 5"),
                 {"--start-iteration", "100", "--steps", "30"},
                 "",
                 false});
  REQUIRE(fixed.wait() == 0);
  REQUIRE(steps_of(fixed, 2) == from(103, 2, 5));
}

TEST_CASE("an edit made in the last collected step holds") {
  RealJob job({2, config("true", 5), {"--steps", "100000000", "--step-ms", "40"}, "", true});
  REQUIRE(eventually([&] { return job.status().collected == 5; }));
  write_text(job.config_path, config("true", 3));
  REQUIRE(finished(job, 2, config("false", 3)));
  StepList expected = from(1, 5);
  for (const std::int64_t step : from(commits(job)[1].effective_step, 3)) expected.push_back(step);
  REQUIRE(steps_of(job, 2) == expected);
}

}  // namespace
}  // namespace gradmon
