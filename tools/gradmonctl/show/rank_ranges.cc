// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/show/rank_ranges.h"

namespace gradmon {

std::string rank_ranges(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (first == 0 ? "" : ", ") + std::to_string(ranks[first]);
    if (last > first) text += (last == first + 1 ? ", " : "-") + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace gradmon
