// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/agreement.h"

#include <algorithm>

namespace gradmon {

bool is_counted(const RankStatus& rank) { return rank.state != "left" && rank.state != "dropped"; }

Agreement agreement_of(const Status& status) {
  Agreement agreement;
  for (const RankStatus& rank : status.ranks) {
    if (rank.state == "dropped") agreement.dropped.push_back(rank.rank.value);
    if (rank.state == "left") agreement.ended.push_back(rank.rank.value);
    if (!is_counted(rank)) continue;
    ++agreement.counted;
    agreement.waited_ms = std::max(agreement.waited_ms, rank.waited_ms);
    const bool heard = rank.state != "absent" && rank.last_seen_ms < kHeardWithinMs;
    if (heard && rank.revision == status.revision) ++agreement.agreeing;
  }
  return agreement;
}

}  // namespace gradmon
