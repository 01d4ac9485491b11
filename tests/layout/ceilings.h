// SPDX-License-Identifier: Apache-2.0
// The sizes and names that STYLE.md (Files and names, 10) forbids.
#pragma once

#include <string>
#include <vector>

#include "tests/layout/source_tree.h"

namespace gradmon {

constexpr int kGreatestLines = 500;

// One line for each breach, `FILE: what is wrong`, in the tree's order.
std::vector<std::string> ceiling_violations(const SourceTree& tree);

}  // namespace gradmon
