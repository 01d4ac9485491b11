// SPDX-License-Identifier: Apache-2.0
// Checks for files that are too long and for forbidden names: CONTRIBUTING.md, "Style, in ten lines".
#pragma once

#include <string>
#include <vector>

#include "tests/layout/source_tree.h"

namespace gradmon {

constexpr int kMaxLines = 800;

// One line for each violation, `FILE: what is wrong`, in the tree's order.
std::vector<std::string> ceiling_violations(const SourceTree& tree);

}  // namespace gradmon
