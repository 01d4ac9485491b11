// SPDX-License-Identifier: Apache-2.0
// The time that a fault cost training, from the step logs of all ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/whole/availability/training_job.h"

namespace gradmon {

// A long call of monitor.step(): its time beyond the rank's median, less the time in
// which the test had stopped the rank or the rank waited for a CPU.
struct Stall {
  int rank = 0;
  std::int64_t step = 0;
  std::int64_t began = 0;  // us
  std::int64_t took = 0;   // us
};

struct StallBounds {
  std::chrono::milliseconds longest{2'100};    // of any stall: max_wait + 100 ms
  std::chrono::milliseconds all_but_one{250};  // of all stalls of a rank but one
  std::chrono::milliseconds total{2'500};      // of all ranks, simultaneous stalls counted once
};

// The stalls of at least 5 ms between `from` and `until` (us).
std::vector<Stall> stalls(TrainingJob& job, std::int64_t from, std::int64_t until);
// One line for each broken bound.
std::vector<std::string> bound_violations(const std::vector<Stall>& stalls, const StallBounds& bounds);
std::string to_string(const std::vector<Stall>& stalls);

}  // namespace gradmon
