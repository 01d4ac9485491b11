// SPDX-License-Identifier: Apache-2.0
// Compares the files that the processes of a KillableJob wrote (switches.jsonl, CSV
// rows, step logs) with the history of their launch. Call it when no plan is open
// and no rank collects.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/whole/chaos/killable_job.h"

namespace gradmon {

struct Audit {
  // Violations: a rank put a plan in force at another step than was agreed, or skipped
  // a plan without a lapse; it lacks rows of a plan that it had in force, has rows of
  // no plan, or has rows under a plan that another had replaced; or it ended with an error
  // by itself.
  std::vector<std::string> violations;
  // Each lapse: the rank, and its first step off.
  std::set<std::pair<int, std::int64_t>> lapses;
  std::size_t commits = 0;
  std::size_t aborts = 0;
  // Steps that a rank collected under a replaced plan shortly before it was killed: it
  // may not have heard of the newer plan.
  std::size_t stale_steps_before_kill = 0;
  // The longest call of Monitor::step(), less the time in which the process was
  // stopped. The first call of a process does not count.
  std::chrono::microseconds longest_call{0};
  std::string slowest;  // the rank and step of that call
};

// Checks one launch, whose epoch must be in KillableJob::epochs().
Audit audit_launch(KillableJob& job, const std::string& launch);

}  // namespace gradmon
