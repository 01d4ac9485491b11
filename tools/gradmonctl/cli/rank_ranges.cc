// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/rank_ranges.h"

#include <map>

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

std::vector<std::string> grouped_by_text(const std::vector<std::pair<int, std::string>>& texts) {
  std::map<std::string, std::vector<int>> ranks;
  std::vector<std::string> order;
  for (const auto& [rank, text] : texts) {
    if (ranks[text].empty()) order.push_back(text);
    ranks[text].push_back(rank);
  }
  for (std::string& text : order) text = rank_ranges(ranks[text]) + ": " + text;
  return order;
}

}  // namespace gradmon
