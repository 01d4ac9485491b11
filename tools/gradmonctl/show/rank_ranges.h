// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace gradmon {

// Ascending rank numbers as readable text: "rank 3" or "ranks 0-3, 7".
std::string rank_ranges(const std::vector<int>& ranks);

}  // namespace gradmon
