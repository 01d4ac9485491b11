// SPDX-License-Identifier: Apache-2.0
#include "tests/layout/rooms.h"

#include "control/debian_version.h"
#include "tests/layout/layers.h"
#include "tests/layout/seeded_tree.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Lines = std::vector<std::string>;

TEST_CASE("no folder of this repository has too many names") {
  for (const auto& line : crowded_rooms(read_tree(GRADMON_SOURCE_DIR))) FAIL_CHECK(line);
}

TEST_CASE("a folder with one name too many is reported and a header and its source are one name") {
  SourceTree tree;
  for (int i = 0; i < 40; ++i) {
    tree["writers/full/" + std::to_string(i) + ".h"] = "";
    tree["writers/full/" + std::to_string(i) + ".cc"] = "";
  }
  tree["writers/full/FORMAT.md"] = tree["writers/full/within/x.cc"] = "";
  CHECK(crowded_rooms(tree).empty());
  tree["writers/full/more.py"] = "";
  CHECK(crowded_rooms(tree) == Lines{"writers/full: 41 names of code files, more than 40"});
}

TEST_CASE("every folder with code outside tests has a line of its own in layers.txt") {
  const auto table = parse_layers(read_file(GRADMON_SOURCE_DIR "/tests/layout/layers.txt"));
  for (const auto& [path, text] : read_tree(GRADMON_SOURCE_DIR)) {
    const std::filesystem::path file(path);
    if (file.extension() != ".cc" || lies_in(path, "tests")) continue;
    if (table.rooms.count(file.parent_path().string()) == 0)
      FAIL_CHECK(path << " lies in a folder without a line in layers.txt");
  }
}

}  // namespace
}  // namespace gradmon
