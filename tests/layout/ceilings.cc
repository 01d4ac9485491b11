// SPDX-License-Identifier: Apache-2.0
#include "tests/layout/ceilings.h"

#include <algorithm>

namespace gradmon {
namespace {

bool is_source(const std::string& path) {
  const std::vector<std::string> kinds{".h", ".cc", ".py", ".sh", ".proto", ".cmake", ".pml"};
  return std::find(kinds.begin(), kinds.end(), std::filesystem::path(path).extension()) != kinds.end();
}

}  // namespace

std::vector<std::string> ceiling_violations(const SourceTree& tree) {
  std::vector<std::string> found;
  for (const auto& [path, text] : tree) {
    for (const std::string word : {"utils", "common", "misc", "helpers", "part2"}) {
      if (path.find(word) != std::string::npos) found.push_back(path + ": forbidden name: " + word);
    }
    if (!is_source(path)) continue;
    if (const auto lines = std::count(text.begin(), text.end(), '\n'); lines > kMaxLines) {
      found.push_back(path + ": " + std::to_string(lines) + " lines, more than " + std::to_string(kMaxLines));
    }
  }
  return found;
}

}  // namespace gradmon
