// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gradmon {

// Ascending rank numbers as readable text: "rank 3" or "ranks 0-3, 7".
std::string rank_ranges(const std::vector<int>& ranks);

// "RANKS: TEXT" for each distinct text, in the order of the first rank that has it.
std::vector<std::string> grouped_by_text(const std::vector<std::pair<int, std::string>>& texts);

}  // namespace gradmon
