// SPDX-License-Identifier: Apache-2.0
// Checks every `#include` against the table in layers.txt.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/layout/source_tree.h"

namespace gradmon {

// The contents of layers.txt, which explains the words.
struct LayerTable {
  struct Room {
    std::vector<std::string> places;     // folders and files that it may include, besides its own
    std::vector<std::string> libraries;  // names
  };

  std::map<std::string, Room> rooms;                              // by folder
  std::vector<std::string> open;                                  // files
  std::map<std::string, std::vector<std::string>> libraries;      // name to include prefixes
  std::map<std::string, std::vector<std::string>> users;          // library to its only users
  std::map<std::string, std::vector<std::string>> banned;         // folder to forbidden include names
  std::map<std::string, std::vector<std::string>> never_written;  // folder to forbidden text
};

// Throws std::runtime_error with the number of the invalid line.
LayerTable parse_layers(const std::string& text);

// One line for each violation, `FILE:LINE: what is wrong`, in the tree's order. Checks
// `.h`, `.cc`, `.cpp` and `.hpp` files outside tests/.
std::vector<std::string> layer_violations(const SourceTree& tree, const LayerTable& table);

// `room FOLDER: no file of the tree lies in it` and `library NAME: no room may include it`.
std::vector<std::string> unused_lines(const SourceTree& tree, const LayerTable& table);

}  // namespace gradmon
