// SPDX-License-Identifier: Apache-2.0
// What the processes of a MortalJob have left behind, held against the history
// of their launch: their own notes of what they put in force at which step,
// their CSV rows, their step logs. Read from outside; ask when all has come to rest.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/whole/chaos/mortal_job.h"

namespace gradmon {

struct Evidence {
  // Where a rank put a plan in force at another step than was agreed, or passed
  // over one without having gone off; where its rows are not those of what it ran,
  // or stand under a plan that another had replaced.
  std::vector<std::string> breaches;
  // Ranks that went on off, and from which step.
  std::set<std::pair<int, std::int64_t>> lapses;
  std::size_t commits = 0;
  std::size_t aborts = 0;
  std::size_t switches_noted = 0;
  // Steps that a killed rank collected under a plan that had been replaced since
  // it was last heard.
  std::size_t ahead_of_its_death = 0;
  // The longest call of gradmon between two steps, without the time in which
  // the process was stopped, and the first step's apart.
  std::chrono::microseconds longest_call{0};
  std::string slowest;  // which that was
};

// Of one launch, whose epoch MortalJob::epochs() knows.
Evidence gather(const MortalJob& job, const std::string& launch);

}  // namespace gradmon
