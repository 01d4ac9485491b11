// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace gradmon {

// Rising rank numbers for people, as "rank 3" or "ranks 0-3, 7".
std::string rank_ranges(const std::vector<int>& ranks);

}  // namespace gradmon
