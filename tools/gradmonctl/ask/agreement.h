// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "control/agree/journal.h"

namespace gradmon {

// A rank that has not been heard for this time or longer does not agree.
inline constexpr std::int64_t kHeardWithinMs = 3'000;

// Counts the ranks of a status. A rank agrees if it was heard within kHeardWithinMs and
// has applied the job's revision. `counted` excludes ranks that have ended or were
// dropped: the coordinator does not ask them. A value.
struct Agreement {
  int agreeing = 0;
  int counted = 0;
  std::vector<int> dropped;
  std::vector<int> ended;
  std::int64_t waited_ms = 0;  // the longest current wait of a rank's training
};

Agreement agreement_of(const Status& status);

// Whether the coordinator asks the rank, or will ask it once it joins.
bool is_counted(const RankStatus& rank);

}  // namespace gradmon
