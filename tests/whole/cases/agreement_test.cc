// SPDX-License-Identifier: Apache-2.0
// Real ranks, switched again and again: no rank ever runs a step under another revision
// than the other ranks.
#include <algorithm>
#include <fstream>
#include <random>
#include <set>

#include "tests/support/catch.h"
#include "tests/support/outcome.h"
#include "tests/support/real_job.h"
#include "tests/support/scale.h"

namespace gradmon {
namespace {

std::string config(bool on, std::int64_t times, std::int64_t interval) {
  return "{\n  \"wg_distribution\": true,\n  \"dynamic_on\": " + std::string(on ? "true" : "false") +
         ",\n  \"collect_times\": " + std::to_string(times) +
         ",\n  \"step_interval\": " + std::to_string(interval) + "\n}\n";
}

// Makes a change in one of the ways in which users do: several ways to save the file, or a command.
void make_change(RealJob& job, int way, const std::string& text, bool on) {
  const std::string path = job.config_path.string();
  switch (way % 5) {
    case 0:
      return write_text(path, text);
    case 1: {
      std::ofstream(path, std::ios::trunc) << text;
      return;
    }
    case 2: {
      const auto beside = job.directory() / "edited";
      std::ofstream(beside) << text;
      run_program({"cp", beside.string(), path}, job.directory() / "log");
      return;
    }
    case 3: {
      const auto beside = job.directory() / "edited";
      std::ofstream(beside) << text;
      run_program({"mv", beside.string(), path}, job.directory() / "log");
      return;
    }
    default:
      job.ask(on ? CommandVerb::on : CommandVerb::off);
  }
}

// A rank may lapse if the machine stalls for seconds; it then misses commits, and its log says
// so. Requires that all other ranks applied each commit at its effective step, or an off later.
std::set<int> ranks_that_missed_a_commit(RealJob& job, int world) {
  const std::string log = job.log();
  std::set<int> lapsed;
  for (const HistoryEntry& entry : job.history()) {
    if (entry.verdict != "commit") continue;
    for (int rank = 0; rank < world; ++rank) {
      const auto at = entry.applied.find(rank);
      CAPTURE(entry.revision.value, entry.reason, rank, log);
      if (at == entry.applied.end()) {
        REQUIRE(log.find("rank " + std::to_string(rank) + ": off: ") != std::string::npos);
        lapsed.insert(rank);
      } else if (!entry.on && at->second > entry.effective_step) {
        lapsed.insert(rank);
      } else {
        REQUIRE(at->second == entry.effective_step);
      }
    }
  }
  return lapsed;
}

void check_rows(const RealJob& job, int world, const std::set<int>& lapsed) {
  const auto commits = commits_in_history(job.output_dir);
  const Step end = commits.back().steps.end();
  const auto agreed = steps_agreed(commits, end.value);
  const auto found = rows_in_files(job.output_dir, "grad_reduced");
  REQUIRE(found.size() == static_cast<std::size_t>(world));
  for (const auto& [rank, steps] : found) {
    std::set<std::int64_t> own;
    const std::int64_t rows = steps.empty() ? 0 : steps.begin()->second;
    for (const auto& [step, count] : steps) {
      own.insert(step);
      CAPTURE(rank, step);
      REQUIRE(count == rows);
    }
    CAPTURE(rank);
    if (lapsed.count(rank) == 0) {
      REQUIRE(own == agreed);
    } else {
      REQUIRE(std::includes(agreed.begin(), agreed.end(), own.begin(), own.end()));
    }
  }
}

void switch_and_check(int world, std::vector<std::string> train, int switches, unsigned seed) {
  train.insert(train.end(), {"--steps", "100000000", "--step-ms", "4"});
  RealJob job({world, config(false, 5, 1), train, "", true});
  REQUIRE(job.wait_for_all_ranks());
  std::mt19937 random(seed);
  std::size_t changes = 0;
  for (int i = 0; i < switches; ++i) {
    const bool on = i % 2 == 0;
    const int way = static_cast<int>(random() % 5);
    const std::size_t before = job.history().size();
    make_change(job, way, config(on, 2 + random() % 6, 1 + random() % 3), on);
    CAPTURE(i, way, on, job.log());
    // An `off` after the previous plan has finished is no change.
    REQUIRE(eventually([&] {
      const Status now = job.status();
      return job.history().size() > before || (!on && now.state == "off" && !now.pending);
    }));
    changes = job.history().size();
    if (random() % 4 != 0) REQUIRE(job.wait_for_changes(changes));
  }
  const std::size_t before = job.history().size();
  make_change(job, 0, config(true, 2, 1), true);
  REQUIRE(eventually([&] { return job.history().size() > before; }));
  REQUIRE(job.wait_for_changes(before + 1));
  REQUIRE(eventually([&] { return job.history().back().finished_step > 0; }, std::chrono::seconds(60)));

  const std::set<int> lapsed = ranks_that_missed_a_commit(job, world);
  CAPTURE(lapsed);
  REQUIRE(lapsed.size() < static_cast<std::size_t>(world));
  check_rows(job, world, lapsed);
  job.end();
}

TEST_CASE("2 coupled ranks never run a step under two revisions") {
  switch_and_check(2, {}, scaled(10, 40), 1);
}
TEST_CASE("2 uncoupled ranks several steps apart never run a step under two revisions") {
  switch_and_check(2, {"--uncoupled", "--skew-ms", "10"}, scaled(8, 40), 2);
}
TEST_CASE("4 coupled ranks never run a step under two revisions") {
  switch_and_check(4, {"--skew-ms", "5"}, scaled(8, 40), 3);
}
TEST_CASE("4 uncoupled ranks several steps apart never run a step under two revisions") {
  switch_and_check(4, {"--uncoupled", "--skew-ms", "20"}, scaled(6, 30), 4);
}
TEST_CASE("8 coupled ranks never run a step under two revisions") {
  switch_and_check(8, {}, scaled(4, 20), 5);
}
TEST_CASE("8 uncoupled ranks several steps apart never run a step under two revisions") {
  switch_and_check(8, {"--uncoupled", "--skew-ms", "30"}, scaled(4, 30), 6);
}

}  // namespace
}  // namespace gradmon
