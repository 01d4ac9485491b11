// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/micro_step_counter.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr int kMostMicroSteps = 1 << 16;

TEST_CASE("a step that never ends has a bounded number of micro steps and their calls go on counting") {
  MicroStepCounter counter({{"", 0, nullptr}, {"fc", 0, nullptr}}, 1);
  counter.begin_step();
  MicroStepCounter::Place last;
  for (int i = 0; i < kMostMicroSteps + 5; ++i)
    last = counter.outermost(0, MicroStepCounter::Gradients::disabled);
  CHECK(last.micro_step == kMostMicroSteps - 1);
  CHECK(last.call == 6);
  CHECK(counter.within(1, last.micro_step, MicroStepCounter::Gradients::enabled).call == 1);
  counter.begin_step();
  CHECK(counter.outermost(0, MicroStepCounter::Gradients::enabled).micro_step == 0);
}

}  // namespace
}  // namespace gradmon
