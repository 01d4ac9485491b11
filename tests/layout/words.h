// SPDX-License-Identifier: Apache-2.0
// Checks for forbidden identifiers and phrases, and for cited pages that do not exist.
#pragma once

#include <string>
#include <vector>

#include "tests/layout/source_tree.h"

namespace gradmon {

// The contents of words.txt, which explains the words.
struct WordList {
  std::vector<std::string> names;    // identifiers, as whole words
  std::vector<std::string> phrases;  // lower case, one space between words
};

// Throws std::runtime_error with the number of the invalid line.
WordList parse_words(const std::string& text);

// `FILE:LINE: what is wrong`, in the tree's order. A phrase may continue in the next line of a
// comment. Skips binary files, tests/layout and tests/fuzz/corpus.
std::vector<std::string> word_violations(const SourceTree& tree, const WordList& words);

// `FILE:LINE: cites PAGE, which is not in this repository`: links in pages, and names of pages
// (CAPITALS.md, FOLDER/name.md) anywhere.
std::vector<std::string> missing_pages(const SourceTree& tree);

}  // namespace gradmon
