// SPDX-License-Identifier: Apache-2.0
#include "tests/layout/rooms.h"

#include <set>

namespace gradmon {

std::vector<std::string> crowded_rooms(const SourceTree& tree) {
  std::map<std::string, std::set<std::string>> names;
  for (const auto& [path, text] : tree) {
    const std::filesystem::path file(path);
    const std::string kind = file.extension().string();
    if (kind == ".h" || kind == ".cc" || kind == ".py")
      names[file.parent_path().string()].insert(file.stem().string());
  }
  std::vector<std::string> found;
  for (const auto& [folder, in_it] : names) {
    if (in_it.size() > kMaxNamesInARoom)
      found.push_back(folder + ": " + std::to_string(in_it.size()) + " names of code files, more than " +
                      std::to_string(kMaxNamesInARoom));
  }
  return found;
}

}  // namespace gradmon
