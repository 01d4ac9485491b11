// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/parse/nearest_word.h"

#include <algorithm>

namespace gradmon {
namespace {

// Optimal string alignment: Levenshtein's distance, neighbours that changed places counted once.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> least(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        least[i][j] = i + j;
        continue;
      }
      const std::size_t changed = least[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      least[i][j] = std::min({least[i - 1][j] + 1, least[i][j - 1] + 1, changed});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        least[i][j] = std::min(least[i][j], least[i - 2][j - 2] + 1);
    }
  }
  return least[a.size()][b.size()];
}

}  // namespace

std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
  constexpr std::size_t longest = 40;  // of a command nobody types more
  if (word.size() > longest) return "";
  std::string nearest;
  std::size_t best = word.size() < 4 ? 1 : 2;
  for (const std::string& candidate : known) {
    const std::size_t far = candidate.rfind(word, 0) == 0 ? 0 : distance(word, candidate);
    if (far > best || (far == best && !nearest.empty())) continue;
    best = far;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace gradmon
