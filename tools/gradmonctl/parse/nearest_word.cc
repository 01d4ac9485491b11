// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/parse/nearest_word.h"

#include "control/text/edit_distance.h"

namespace gradmon {
std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
  constexpr std::size_t longest = 40;  // no command is longer
  if (word.size() > longest) return "";
  std::string nearest;
  std::size_t best = word.size() < 4 ? 1 : 2;
  for (const std::string& candidate : known) {
    const std::size_t far = candidate.rfind(word, 0) == 0 ? 0 : edit_distance(word, candidate, best);
    if (far > best || (far == best && !nearest.empty())) continue;
    best = far;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace gradmon
