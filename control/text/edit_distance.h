// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace gradmon {

// Levenshtein distance: the number of bytes to insert, remove or replace to turn `a` into `b`. Returns
// limit + 1 for any distance above `limit`. Pure.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit);

}  // namespace gradmon
