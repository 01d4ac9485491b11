// SPDX-License-Identifier: Apache-2.0
// Compares the end of training with that of training without gradmon.
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
