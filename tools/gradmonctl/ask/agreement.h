// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "control/agree/journal.h"

namespace gradmon {

// A rank that has been silent for longer is not taken to agree.
inline constexpr std::int64_t kHeardWithinMs = 3'000;

// The ranks of a status, counted. A rank agrees when it was heard lately and has
// applied the job's revision. Ranks that have ended or were dropped are asked for
// nothing, so they are not among `counted`. A value.
struct Agreement {
  int agreeing = 0;
  int counted = 0;
  std::vector<int> dropped;
  std::vector<int> ended;
  std::int64_t waited_ms = 0;  // the longest that the training of a rank stands waiting by now
};

Agreement agreement_of(const Status& status);

// Whether the coordinator still asks the rank, or would if it came.
bool is_counted(const RankStatus& rank);

}  // namespace gradmon
