// SPDX-License-Identifier: Apache-2.0
#include "hooks/names/near_names.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace gradmon {

std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  const std::size_t difference = a.size() < b.size() ? b.size() - a.size() : a.size() - b.size();
  if (difference > limit) return limit + 1;
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
    if (*std::min_element(row.begin(), row.end()) > limit) return limit + 1;
  }
  return std::min(row.back(), limit + 1);
}

std::vector<std::string> near_names(std::string_view wanted, const std::vector<TargetName>& names) {
  std::set<std::string, std::less<>> candidates;
  for (const TargetName& name : names) {
    const std::string plain = plain_name(name.name);
    for (std::size_t end = plain.size(); end != std::string::npos && end > 0;
         end = plain.rfind('.', end - 1)) {
      if (!candidates.emplace(plain, 0, end).second) break;  // and so those above it
    }
  }
  const std::size_t limit = std::max<std::size_t>(2, wanted.size() / 3);
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(wanted, candidate, limit);
    if (distance <= limit) near.emplace_back(distance, candidate);
  }
  const std::size_t kept = std::min<std::size_t>(3, near.size());
  std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(kept), near.end());
  std::vector<std::string> nearest;
  for (std::size_t i = 0; i < kept; ++i) nearest.push_back(std::move(near[i].second));
  return nearest;
}

}  // namespace gradmon
