// SPDX-License-Identifier: Apache-2.0
#include "hooks/names/name_suggestions.h"

#include <algorithm>
#include <set>
#include <utility>

#include "control/text/edit_distance.h"

namespace gradmon {

std::vector<std::string> name_suggestions(std::string_view wanted, const std::vector<TargetName>& names) {
  std::set<std::string, std::less<>> candidates;
  for (const TargetName& name : names) {
    const std::string plain = plain_name(name.name);
    for (std::size_t end = plain.size(); end != std::string::npos && end > 0;
         end = plain.rfind('.', end - 1)) {
      if (!candidates.emplace(plain, 0, end).second) break;  // already known, with all its prefixes
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
