// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/measure/range.h"

#include <vector>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("the interval of a median drops the tails of many values and spans all of few") {
  std::vector<double> values;
  for (int i = 1; i <= 100; ++i) values.push_back(i);
  REQUIRE(median_interval(values).low == 40);
  REQUIRE(median_interval(values).high == 61);
  REQUIRE(median_interval({3, 1, 2}).low == 1);
  REQUIRE(median_interval({3, 1, 2}).high == 3);
  REQUIRE(range_of({3, 1, 2}).median == 2);
  REQUIRE(range_of({4, 1, 2, 3}).median == 2.5);
}

}  // namespace
}  // namespace gradmon
