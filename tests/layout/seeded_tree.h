// SPDX-License-Identifier: Apache-2.0
// A small tree of files in a temporary directory, for tests of violations.
#pragma once

#include <filesystem>

#include "tests/layout/source_tree.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {

class SeededTree {
 public:
  explicit SeededTree(const SourceTree& files) {
    for (const auto& [path, text] : files) {
      std::filesystem::create_directories((root() / path).parent_path());
      write_text(root() / path, text);
    }
  }

  const std::filesystem::path& root() const { return directory_.path(); }

 private:
  const TemporaryDirectory directory_;
};

}  // namespace gradmon
