// SPDX-License-Identifier: Apache-2.0
// Checks for folders with too many files: CONTRIBUTING.md, "Style, in ten lines".
#pragma once

#include <string>
#include <vector>

#include "tests/layout/source_tree.h"

namespace gradmon {

// x.h and x.cc count as one name.
constexpr std::size_t kMaxNamesInARoom = 40;

// `FOLDER: 41 names of code files, more than 40` for each folder with too many. The names in
// sub-folders do not count.
std::vector<std::string> crowded_rooms(const SourceTree& tree);

}  // namespace gradmon
