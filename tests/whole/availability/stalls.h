// SPDX-License-Identifier: Apache-2.0
// What an incident has cost training, from the step logs of all ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/whole/availability/training_job.h"

namespace gradmon {

// What monitor.step() took beyond the step itself, and beyond the time in which the
// rank was stopped or had no CPU.
struct Stall {
  int rank = 0;
  std::int64_t step = 0;
  std::int64_t began = 0;  // us
  std::int64_t took = 0;   // us
};

struct StallBounds {
  std::chrono::milliseconds longest{2'100};  // max_wait + 100 ms, once
  std::chrono::milliseconds otherwise{250};
  std::chrono::milliseconds together{2'500};
};

// Those of `from` to `until` (us) that are long enough to be noticed.
std::vector<Stall> stalls(TrainingJob& job, std::int64_t from, std::int64_t until);
// The bounds that they break, in words.
std::vector<std::string> broken_bounds(const std::vector<Stall>& stalls, const StallBounds& bounds);
std::string to_string(const std::vector<Stall>& stalls);

}  // namespace gradmon
