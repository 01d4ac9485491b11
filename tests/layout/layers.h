// SPDX-License-Identifier: Apache-2.0
// Who may include whom, checked: every `#include` against one table.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/layout/source_tree.h"

namespace gradmon {

// What layers.txt says; the words are explained there.
struct LayerTable {
  struct Room {
    std::vector<std::string> places;     // folders and files of ours, besides its own
    std::vector<std::string> libraries;  // names
  };

  std::map<std::string, Room> rooms;                              // by folder
  std::vector<std::string> open;                                  // files
  std::map<std::string, std::vector<std::string>> libraries;      // name to include prefixes
  std::map<std::string, std::vector<std::string>> users;          // library to its only users
  std::map<std::string, std::vector<std::string>> banned;         // folder to whole include names
  std::map<std::string, std::vector<std::string>> never_written;  // folder to pieces of text
};

// Throws std::runtime_error that names the line it does not understand.
LayerTable parse_layers(const std::string& text);

// One line for each breach, `FILE:LINE: what is wrong`, in the tree's order.
// Looks at `.h`, `.cc`, `.cpp` and `.hpp` files outside tests/.
std::vector<std::string> layer_violations(const SourceTree& tree, const LayerTable& table);

}  // namespace gradmon
