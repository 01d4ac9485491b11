// SPDX-License-Identifier: Apache-2.0
// Who has collected which step under which revision, from the step logs.
#pragma once

#include <string>
#include <vector>

#include "tests/whole/availability/training_job.h"

namespace gradmon {

// Steps that two ranks collected under different revisions, or one rank left out
// that the others collected under the revision it had in force; ranks that lapsed are
// not counted. Each a line.
std::vector<std::string> disagreements(TrainingJob& job);

// Ranks whose log says that they gave their plan up by themselves.
std::vector<int> lapsed_ranks(TrainingJob& job);

}  // namespace gradmon
