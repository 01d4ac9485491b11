// SPDX-License-Identifier: Apache-2.0
#include "tests/layout/ceilings.h"

#include "control/debian_version.h"
#include "tests/layout/seeded_tree.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

std::string repeated(int count, const std::string& line) {
  std::string text;
  for (int i = 0; i < count; ++i) text += line;
  return text;
}

}  // namespace

TEST_CASE("no file of this repository is too long or has a forbidden name", "[ceilings]") {
  for (const auto& line : ceiling_violations(read_tree(GRADMON_SOURCE_DIR))) FAIL_CHECK(line);
}

TEST_CASE("a file that is too long or has a forbidden name is reported", "[ceilings]") {
  const SeededTree seeded({{"control/long.cc", repeated(801, "\n")},
                           {"control/fits.cc", repeated(800, "\n")},
                           {"tools/common/a.h", ""},
                           {"tests/x/golden.txt", repeated(900, "\n")}});
  const auto found = ceiling_violations(read_tree(seeded.root()));
  CHECK(found == std::vector<std::string>{"control/long.cc: 801 lines, more than 800",
                                          "tools/common/a.h: forbidden name: common"});
}

}  // namespace gradmon
