// SPDX-License-Identifier: Apache-2.0
// max_overhead with real ranks and a slow disk: the coordinator raises the interval.
#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/outcome.h"
#include "tests/support/real_job.h"

namespace gradmon {
namespace {

using StepList = std::vector<std::int64_t>;

StepList steps_of(const RealJob& job, int rank) {
  StepList list;
  const auto found = rows_in_files(job.output_dir, "grad_reduced");
  const auto own = found.find(rank);
  if (own == found.end()) return list;
  for (const auto& [step, rows] : own->second) list.push_back(step);
  return list;
}

StepList between(const StepList& steps, std::int64_t first, std::int64_t end) {
  StepList found;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(found),
               [&](std::int64_t step) { return step >= first && step < end; });
  return found;
}

std::vector<HistoryEntry> budget_changes(const std::vector<HistoryEntry>& history) {
  std::vector<HistoryEntry> found;
  std::copy_if(history.begin(), history.end(), std::back_inserter(found), [](const HistoryEntry& entry) {
    return entry.cause == "budget" && entry.verdict == "commit";
  });
  return found;
}

bool all_applied(const HistoryEntry& entry, int world) {
  return entry.applied.size() == static_cast<std::size_t>(world) &&
         std::all_of(entry.applied.begin(), entry.applied.end(),
                     [&](const auto& one) { return one.second == entry.effective_step; });
}

TEST_CASE("over a slow disk the budget raises the interval at one step on all ranks and says why") {
  constexpr int world = 3;
  RealJob::Options options;
  options.world = world;
  options.config =
      R"({"targets": {}, "wg_distribution": true, "dynamic_on": true, "queue_capacity": 1, "max_overhead": 0.1})";
  options.train = {"--steps", "100000000", "--step-ms", "2"};
  // Each write to a CSV file takes 20 ms. AddressSanitizer wants to be loaded first, unless it is told not to
  // check.
  options.before =
      "export ASAN_OPTIONS=verify_asan_link_order=0 GRADMON_SLOW_WRITE_MS=20 LD_PRELOAD=" GRADMON_SLOW_WRITES
      ";";
  RealJob job(options);
  REQUIRE(eventually([&] {
    const auto changes = budget_changes(job.history());
    return !changes.empty() && all_applied(changes.front(), world);
  }));
  const HistoryEntry change = budget_changes(job.history()).front();
  INFO(change.by);
  CHECK(change.on);
  CHECK(change.by.find("the budget (rank ") == 0);
  CHECK(change.by.find(" % of its time, allowed 10 %; every ") != std::string::npos);
  Status status;
  REQUIRE(eventually([&] {
    status = job.status();
    return status.revision.value >= change.revision.value;
  }));
  CHECK(status.reason.find("set by the budget (") == 0);
  CHECK(status.step_interval > 1);
  // Every rank has rows of three steps at the new interval.
  const std::int64_t enough = change.effective_step + 3 * status.step_interval;
  REQUIRE(eventually([&] {
    for (int rank = 0; rank < world; ++rank) {
      const StepList steps = steps_of(job, rank);
      if (steps.empty() || steps.back() < enough) return false;
    }
    return true;
  }));
  const auto changes = budget_changes(job.history());
  const std::int64_t end = changes.size() > 1 ? std::min(enough, changes[1].effective_step) : enough;
  job.end();
  StepList expected;
  for (std::int64_t step = 1; step < change.effective_step; ++step) expected.push_back(step);
  const StepList first = between(steps_of(job, 0), 0, end);
  const StepList thinned = between(first, change.effective_step, end);
  REQUIRE_FALSE(thinned.empty());
  REQUIRE(thinned.front() == change.effective_step);
  const std::int64_t interval = thinned.size() > 1 ? thinned[1] - thinned[0] : end - change.effective_step;
  REQUIRE(interval > 1);
  for (std::int64_t step = change.effective_step; step < end; step += interval) expected.push_back(step);
  for (int rank = 0; rank < world; ++rank) {
    CAPTURE(rank);
    CHECK(between(steps_of(job, rank), 0, end) == expected);
  }
}

}  // namespace
}  // namespace gradmon
