// SPDX-License-Identifier: Apache-2.0
#include "control/agree/agreeing_ranks.h"

#include <algorithm>

#include "control/agree/journal.h"

namespace gradmon {

bool is_counted(const RankStatus& rank) { return rank.state != "left" && rank.state != "dropped"; }

AgreeingRanks agreeing_ranks_of(const Status& status) {
  AgreeingRanks sums;
  for (const RankStatus& rank : status.ranks) {
    sums.rows_dropped += rank.dropped;
    if (rank.state == "dropped") sums.dropped.push_back(rank.rank.value);
    if (rank.state == "left") sums.ended.push_back(rank.rank.value);
    if (!is_counted(rank)) continue;
    ++sums.counted;
    sums.waited_ms = std::max(sums.waited_ms, rank.waited_ms);
    const bool heard = rank.state != "absent" && rank.last_seen_ms < kHeardWithinMs;
    if (heard && rank.revision == status.revision) ++sums.agreeing;
  }
  if (!status.unlisted) return sums;
  const AgreeingRanks& rest = *status.unlisted;
  sums.agreeing += rest.agreeing;
  sums.counted += rest.counted;
  sums.dropped.insert(sums.dropped.end(), rest.dropped.begin(), rest.dropped.end());
  sums.ended.insert(sums.ended.end(), rest.ended.begin(), rest.ended.end());
  sums.waited_ms = std::max(sums.waited_ms, rest.waited_ms);
  sums.rows_dropped += rest.rows_dropped;
  return sums;
}

}  // namespace gradmon
