// SPDX-License-Identifier: Apache-2.0
#include "control/text/edit_distance.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("the edit distance is exact up to its limit") {
  CHECK(edit_distance("layers", "layers", 3) == 0);
  CHECK(edit_distance("kitten", "sitting", 5) == 3);
  CHECK(edit_distance("kitten", "sitting", 2) == 3);
  CHECK(edit_distance("", "abc", 9) == 3);
  CHECK(edit_distance("a", "abcdefgh", 3) == 4);
}

}  // namespace
}  // namespace gradmon
