// SPDX-License-Identifier: Apache-2.0
// Whether training came out as it does without gradmon.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/whole/availability/step_log.h"
#include "tests/whole/availability/training_job.h"

namespace gradmon {

// The hash of the parameters after each step, and what a training without gradmon
// leaves at its end: a bare trainer, run once for each first step.
class BareTraining {
 public:
  explicit BareTraining(std::filesystem::path scratch) : scratch_(std::move(scratch)) {}

  const StepLogContent& run(std::int64_t first, std::int64_t last);

 private:
  const std::filesystem::path scratch_;
  std::map<std::int64_t, StepLogContent> runs_;  // by first step
};

// What is different in exit code, parameters, rand() and umask, each a line. `codes`:
// of TrainingJob::end().
std::vector<std::string> different_ends(TrainingJob& job, const std::map<int, std::optional<int>>& codes,
                                        const std::set<int>& not_compared = {});

}  // namespace gradmon
