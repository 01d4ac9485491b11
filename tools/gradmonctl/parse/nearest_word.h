// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace gradmon {

// What somebody may have meant who typed `word`: the one of `known` that fewest letters
// put in, left out or changed make of it, or that it begins; "" where none is near.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

}  // namespace gradmon
