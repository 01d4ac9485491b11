// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace gradmon {

struct RankStatus;
struct Status;

// A rank that has been silent for this time or longer does not agree.
inline constexpr std::int64_t kHeardWithinMs = 3'000;

// Counts the ranks of a status. A rank agrees if it was heard within kHeardWithinMs and
// has applied the job's revision. `counted` excludes ranks that have ended or were
// dropped: the coordinator does not ask them. A value.
struct AgreeingRanks {
  int agreeing = 0;
  int counted = 0;
  std::vector<int> dropped;
  std::vector<int> ended;
  std::int64_t waited_ms = 0;      // the longest current wait of a rank's training
  std::uint64_t rows_dropped = 0;  // of all ranks

  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.agreeing);
    visit(2, self.counted);
    visit(3, self.dropped);
    visit(4, self.ended);
    visit(5, self.waited_ms);
    visit(6, self.rows_dropped);
  }
};

// Counts all ranks, including those that the status does not list.
AgreeingRanks agreeing_ranks_of(const Status& status);

// True if the coordinator asks the rank, or will ask it once it joins.
bool is_counted(const RankStatus& rank);

}  // namespace gradmon
