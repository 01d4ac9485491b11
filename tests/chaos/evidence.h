// SPDX-License-Identifier: Apache-2.0
// What the processes of a MortalJob have left behind, held against the
// register: their own notes of what they put in force at which step, their CSV
// rows, their step logs. Read from outside; ask when all has come to rest.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/chaos/mortal_job.h"

namespace gradmon {

struct Evidence {
  // Where a rank ran a step under another revision than the register says,
  // without having said so; where its rows are not those of what it ran.
  std::vector<std::string> breaches;
  // Ranks that said that they missed a revision.
  std::set<std::pair<int, std::uint64_t>> missed;
  std::size_t commits = 0;
  std::size_t aborts = 0;
  std::size_t switches_noted = 0;
  // The longest call of gradmon between two steps, without the time in which
  // the process was stopped, and the first step's apart.
  std::chrono::microseconds longest_call{0};
  std::string slowest;  // which that was
};

// Of one launch, whose epoch MortalJob::epochs() knows.
Evidence gather(const MortalJob& job, const std::string& launch);

}  // namespace gradmon
