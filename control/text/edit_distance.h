// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace gradmon {

// Levenshtein's distance: how many bytes must be inserted, removed or replaced to make `b`
// of `a`. Returns limit + 1 for any distance above `limit`. Pure.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit);

}  // namespace gradmon
