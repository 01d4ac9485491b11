// SPDX-License-Identifier: Apache-2.0
#include "control/link/step_pace.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;

// What is measured of steps of that duration, looked at every 100 ms for ten seconds.
double measured(milliseconds step) {
  const StepPace::Time begin{};
  StepPace pace(Step{5}, begin);
  for (milliseconds now{0}; now <= milliseconds{10'000}; now += milliseconds{100})
    pace.look(Step{5 + now / step}, begin + now);
  return pace.step_ms();
}

TEST_CASE("the pace of steps is measured, however long they take") {
  CHECK(measured(milliseconds{50}) == 50);
  CHECK(measured(milliseconds{400}) == 400);
  CHECK(measured(milliseconds{1'500}) == 1'500);
  CHECK(measured(milliseconds{5'000}) == 5'000);
  CHECK(measured(milliseconds{20'000}) == 0);
}

}  // namespace
}  // namespace gradmon
