// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "control/step.h"

namespace gradmon {

// The cost of monitoring to a rank's training thread under one plan. OverheadMeter measures it and defines
// `share`. A value.
struct Overhead {
  Revision revision;           // of the plan
  std::int64_t collected = 0;  // collected steps measured so far; 0: `share` is unknown
  double share = 0;            // of the window's wall time: 0.01 is 1 %
  std::int64_t steps = 0;      // in the window, collected or not

  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.revision);
    visit(2, self.collected);
    visit(3, self.share);
    visit(4, self.steps);
  }
};

// A share for people: "4.1 %".
std::string percent_text(double share);

}  // namespace gradmon
