// SPDX-License-Identifier: Apache-2.0
// Checks for forbidden phrases, and for cited pages that do not exist.
#pragma once

#include <string>
#include <vector>

#include "tests/layout/source_tree.h"

namespace gradmon {

// The phrases of words.txt: lower case, one space between words.
std::vector<std::string> parse_phrases(const std::string& text);

// `FILE:LINE: what is wrong`, in the tree's order. A phrase may continue in the next line of a
// comment. Skips binary files, tests/layout and tests/fuzz/corpus.
std::vector<std::string> phrase_violations(const SourceTree& tree, const std::vector<std::string>& phrases);

// `FILE:LINE: cites PAGE, which is not in this repository`: links in pages, and names of pages
// (CAPITALS.md, FOLDER/name.md) anywhere.
std::vector<std::string> missing_pages(const SourceTree& tree);

}  // namespace gradmon
