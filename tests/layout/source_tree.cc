// SPDX-License-Identifier: Apache-2.0
#include "tests/layout/source_tree.h"

#include <fstream>
#include <iterator>
#include <stdexcept>

namespace gradmon {
namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return text;
}

namespace {

// Left by Python's tools.
bool is_made(const std::string& path) {
  for (const char* part : {"__pycache__/", ".mypy_cache/", ".egg-info/", "runtime/python/build/"}) {
    if (path.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

SourceTree read_tree(const fs::path& root, const std::vector<std::string>& folders) {
  SourceTree tree;
  for (const auto& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const auto path = entry.path().lexically_relative(root).generic_string();
      if (!entry.is_regular_file() || is_made(path)) continue;
      tree[path] = read_file(entry.path());
    }
  }
  return tree;
}

bool lies_in(const std::string& path, const std::string& place) {
  return path.compare(0, place.size(), place) == 0 &&
         (path.size() == place.size() || path[place.size()] == '/');
}

}  // namespace gradmon
