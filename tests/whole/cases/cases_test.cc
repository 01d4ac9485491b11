// SPDX-License-Identifier: Apache-2.0
// The six cases of the dynamic mode, with real ranks: which steps are collected, and the
// content of the config file afterwards, byte for byte. 1: static mode. 2: starts off.
// 3: starts on. 4: turned on in mid run. 5: edited while it collects. 6: on again after
// the end.
#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/commits.h"
#include "tests/support/outcome.h"
#include "tests/support/real_job.h"

namespace gradmon {
namespace {

using StepList = std::vector<std::int64_t>;

StepList step_list(std::int64_t first, std::int64_t count, std::int64_t interval = 1) {
  StepList steps;
  for (std::int64_t i = 0; i < count; ++i) steps.push_back(first + i * interval);
  return steps;
}

// The collected steps. Requires that they are the same on all ranks.
StepList steps_of(const RealJob& job, int world) {
  INFO(job.log());
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

// True if every rank has rows of the step on disk.
bool on_disk(const RealJob& job, int world, std::int64_t step) {
  const auto found = rows_in_files(job.output_dir, "grad_reduced");
  return found.size() == static_cast<std::size_t>(world) &&
         std::all_of(found.begin(), found.end(),
                     [&](const auto& rank) { return rank.second.count(step) != 0; });
}

// A config with uneven white space, as a person may write it: gradmon must keep it.
std::string config(const std::string& dynamic_on, int times, const std::string& more = "") {
  return "{\n    \"targets\": {},\r\n\t\"wg_distribution\" : true,\n    \"dynamic_on\":" + dynamic_on +
         ", \"collect_times\": " + std::to_string(times) + more + "}";
}

// Waits until exactly `changes` changes are committed, the last one has finished, and the
// config file has the content `file`.
bool wait_until_finished(RealJob& job, std::size_t changes, const std::string& file) {
  return eventually(
      [&] {
        const auto made = commits_of(job.history());
        const Status now = job.status();
        return job.config_text() == file && now.reason == "finished" && made.size() == changes &&
               now.revision == made.back().revision;
      },
      std::chrono::seconds(60));
}

// The steps from the first change, which is on a slow machine not at step 1, to the second.
StepList steps_of_first(const std::vector<HistoryEntry>& changes) {
  const std::int64_t first = changes.at(0).effective_step;
  return step_list(first, changes.at(1).effective_step - first);
}

StepList both(StepList first, const StepList& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

const std::vector<std::string> kEndless = {"--steps", "100000000", "--step-ms", "5"};

TEST_CASE("case 1 static mode ignores dynamic_on and follows start_step and step_interval") {
  RealJob job(
      {2, config("true", 3, ", \"start_step\": 4, \"step_interval\": 3"), {"--steps", "30"}, "", false});
  REQUIRE(job.wait() == 0);
  REQUIRE(steps_of(job, 2) == step_list(4, 3, 3));
  REQUIRE(job.config_text() == config("true", 3, ", \"start_step\": 4, \"step_interval\": 3"));
}

TEST_CASE("case 1 static mode collects the very first step") {
  RealJob job({2, config("false", 2), {"--steps", "5"}, "", false});
  REQUIRE(job.wait() == 0);
  REQUIRE(steps_of(job, 2) == step_list(0, 2));
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
  REQUIRE(steps_of(job, 2) == step_list(1, 3));
  REQUIRE(
      eventually([&] { return job.config_text() == config("false", 3); }));  // by the hub, which still runs
}

TEST_CASE("case 4 a job turned on in mid run collects from the agreed step") {
  RealJob job({2, config("false", 3), kEndless, "", true});
  REQUIRE(eventually([&] { return job.status().ranks.size() == 2 && job.status().ranks[1].step > 10; }));
  write_text(job.config_path, config("true", 4));
  REQUIRE(wait_until_finished(job, 1, config("false", 4)));
  const auto history = commits_of(job.history());
  REQUIRE(history.size() == 1);
  REQUIRE(history[0].effective_step > 10);
  REQUIRE(steps_of(job, 2) == step_list(history[0].effective_step, 4));
}

TEST_CASE("case 5 an edit while collecting restarts the count at the agreed step") {
  RealJob job({2, config("true", 1000000), kEndless, "", true});
  REQUIRE(eventually([&] { return job.status().collected > 5; }));
  write_text(job.config_path, config("true", 3, ", \"step_interval\": 2"));
  REQUIRE(wait_until_finished(job, 2, config("false", 3, ", \"step_interval\": 2")));
  const auto history = commits_of(job.history());
  REQUIRE(history.size() == 2);
  REQUIRE(steps_of(job, 2) == both(steps_of_first(history), step_list(history[1].effective_step, 3, 2)));
}

TEST_CASE("case 5 collect_times 0 stops at the agreed step and the file says false") {
  RealJob job({2, config("true", 1000000), kEndless, "", true});
  REQUIRE(eventually([&] { return job.status().collected > 5; }));
  write_text(job.config_path, config("true", 0));
  REQUIRE(wait_until_finished(job, 2, config("false", 0)));
  REQUIRE(steps_of(job, 2) == steps_of_first(commits_of(job.history())));
}

TEST_CASE("case 5 dynamic_on false stops at the agreed step") {
  RealJob job({2, config("true", 1000000), kEndless, "", true});
  REQUIRE(eventually([&] { return job.status().collected > 5; }));
  REQUIRE(eventually([&] {  // each rank tells the cost of monitoring, also without a budget
    const auto ranks = job.status().ranks;
    return ranks.size() == 2 && std::all_of(ranks.begin(), ranks.end(), [](const RankStatus& rank) {
             return rank.overhead.collected > 5 && rank.overhead.share > 0 && rank.overhead.share < 1;
           });
  }));
  write_text(job.config_path, config("false", 1000000));
  REQUIRE(eventually([&] { return job.status().state == "off"; }));
  REQUIRE(job.wait_for_changes(2));
  const auto history = commits_of(job.history());
  REQUIRE(eventually(
      [&] { return on_disk(job, 2, history[1].effective_step - 1); }));  // end() kills the writers.
  job.end();
  REQUIRE(steps_of(job, 2) == steps_of_first(history));
  REQUIRE(job.config_text() == config("false", 1000000));
}

TEST_CASE("case 6 saving the finished plan again with true collects it again") {
  RealJob job({2, config("true", 2), kEndless, "", true});
  REQUIRE(eventually([&] { return job.config_text() == config("false", 2); }));
  write_text(job.config_path, config("true", 2));
  REQUIRE(wait_until_finished(job, 2, config("false", 2)));
  const auto history = commits_of(job.history());
  REQUIRE(steps_of(job, 2) ==
          both(step_list(history[0].effective_step, 2), step_list(history[1].effective_step, 2)));
}

TEST_CASE("with start_iteration 100 both modes count steps from 100") {
  RealJob dynamic(
      {2, config("true", 2), {"--start-iteration", "100", "--steps", "300", "--step-ms", "4"}, "", true});
  REQUIRE(dynamic.wait() == 0);
  REQUIRE(steps_of(dynamic, 2) == step_list(101, 2));
  RealJob fixed({2,
                 config("true", 2, ", \"start_step\": 98, \"step_interval\": 5"),
                 {"--start-iteration", "100", "--steps", "30"},
                 "",
                 false});
  REQUIRE(fixed.wait() == 0);
  REQUIRE(steps_of(fixed, 2) == step_list(103, 2, 5));
}

TEST_CASE("an edit made in the last collected step takes effect") {
  RealJob job({2, config("true", 5), {"--steps", "100000000", "--step-ms", "40"}, "", true});
  REQUIRE(eventually([&] { return job.status().collected == 5; }));
  write_text(job.config_path, config("true", 3));
  REQUIRE(wait_until_finished(job, 2, config("false", 3)));
  const auto history = commits_of(job.history());
  REQUIRE(steps_of(job, 2) ==
          both(step_list(history[0].effective_step, 5), step_list(history[1].effective_step, 3)));
}

}  // namespace
}  // namespace gradmon
