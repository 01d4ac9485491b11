// SPDX-License-Identifier: Apache-2.0
// The size of a folder: CONTRIBUTING.md, "Style, in ten lines".
#pragma once

#include <string>
#include <vector>

#include "tests/layout/source_tree.h"

namespace gradmon {

// A name is what x.h and x.cc have in common.
constexpr std::size_t kMostNamesInARoom = 20;

// `FOLDER: 21 names of code files, more than 20` for each folder with too many, without
// those of its sub-folders.
std::vector<std::string> crowded_rooms(const SourceTree& tree);

}  // namespace gradmon
