// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace gradmon {

// The known word with the smallest edit distance to `word`; a known word that starts with `word` has distance
// 0. The distance is at most 1 for words of up to 3 letters, else at most 2; "" if all known words are
// farther.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

}  // namespace gradmon
