// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/rank_ranges.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("three or more consecutive ranks are shown as a range") {
  CHECK(rank_ranges({3}) == "rank 3");
  CHECK(rank_ranges({0, 1}) == "ranks 0, 1");
  CHECK(rank_ranges({0, 1, 2, 3, 7, 9, 10, 11}) == "ranks 0-3, 7, 9-11");
}

TEST_CASE("ranks with the same text share a line in the order of the first rank") {
  CHECK(grouped_by_text({{0, "b"}, {1, "a"}, {2, "b"}}) ==
        std::vector<std::string>{"ranks 0, 2: b", "rank 1: a"});
}

}  // namespace
}  // namespace gradmon
