// SPDX-License-Identifier: Apache-2.0
// A small tree of files in a directory of its own, to seed violations in.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/layout/source_tree.h"

namespace gradmon {

// The directory and all in it are gone with the object.
class SeededTree {
 public:
  explicit SeededTree(const SourceTree& files) {
    std::string name = (std::filesystem::temp_directory_path() / "gradmon_layout_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    root_ = name;
    for (const auto& [path, text] : files) {
      std::filesystem::create_directories((root_ / path).parent_path());
      std::ofstream(root_ / path) << text;
    }
  }
  ~SeededTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  SeededTree(const SeededTree&) = delete;
  SeededTree& operator=(const SeededTree&) = delete;

  const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
};

}  // namespace gradmon
