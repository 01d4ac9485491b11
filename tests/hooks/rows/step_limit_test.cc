// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/step_limit.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("a step that has as many things as its limit is full, and so is a later one") {
  StepLimit limit(2, "rows");
  for (int step = 0; step < 2; ++step) {
    CHECK_FALSE(limit.reached(0));
    CHECK_FALSE(limit.reached(1));
    CHECK(limit.reached(2));
    CHECK(limit.reached(3));
  }
}

}  // namespace
}  // namespace gradmon
