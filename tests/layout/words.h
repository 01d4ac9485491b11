// SPDX-License-Identifier: Apache-2.0
// Identifiers and phrases that are nowhere, and pages that are cited and must be there.
#pragma once

#include <string>
#include <vector>

#include "tests/layout/source_tree.h"

namespace gradmon {

// What words.txt says; the words are explained there.
struct WordList {
  std::vector<std::string> names;    // identifiers, as whole words
  std::vector<std::string> phrases;  // lower case, one space between words
};

// Throws std::runtime_error that names the line it does not understand.
WordList parse_words(const std::string& text);

// `FILE:LINE: what is wrong`, in the tree's order. A phrase may go on in the next line of a
// comment. Binary files and words.txt itself are not looked at.
std::vector<std::string> word_violations(const SourceTree& tree, const WordList& words);

// `FILE:LINE: cites PAGE, which is not in this repository`: links in pages, and names of pages
// (CAPITALS.md, FOLDER/name.md) anywhere.
std::vector<std::string> missing_pages(const SourceTree& tree);

}  // namespace gradmon
