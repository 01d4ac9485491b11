// SPDX-License-Identifier: Apache-2.0
// Checks of a training job by its step logs: the time that a fault cost training (stalls()), whether the
// ranks collected the same steps under the same revisions (disagreements()), and whether training ended as
// without gradmon (different_ends()).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/whole/availability/step_files.h"
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

// One line for each pair of ranks that disagree on a step: both collected it, but under
// different revisions; or one of them did not collect it, although both had the same
// revision in force. Ranks that lapsed are left out.
std::vector<std::string> disagreements(TrainingJob& job);

// The ranks that lapsed, by their output or their step logs.
std::vector<int> lapsed_ranks(TrainingJob& job);

// Runs the trainer without gradmon, with the hash of the parameters after each step. The
// runs are cached by first step, and repeated only for a later last step.
class BareTraining {
 public:
  explicit BareTraining(std::filesystem::path scratch) : scratch_(std::move(scratch)) {}

  const StepLogContent& run(std::int64_t first, std::int64_t last);

 private:
  const std::filesystem::path scratch_;
  std::map<std::int64_t, StepLogContent> runs_;  // by first step
};

// One line for each difference in exit code, parameters, rand() or umask. `codes`: from
// TrainingJob::end().
std::vector<std::string> different_ends(TrainingJob& job, const std::map<int, std::optional<int>>& codes,
                                        const std::set<int>& not_compared = {});

}  // namespace gradmon
