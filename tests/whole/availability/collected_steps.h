// SPDX-License-Identifier: Apache-2.0
// Reads the step logs: whether the ranks collected the same steps under the same revisions.
#pragma once

#include <string>
#include <vector>

#include "tests/whole/availability/training_job.h"

namespace gradmon {

// One line for each pair of ranks that disagree on a step: both collected it, but under
// different revisions; or one of them did not collect it, although both had the same
// revision in force. Ranks that lapsed are left out.
std::vector<std::string> disagreements(TrainingJob& job);

// The ranks that lapsed, by their output or their step logs.
std::vector<int> lapsed_ranks(TrainingJob& job);

}  // namespace gradmon
