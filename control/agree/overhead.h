// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "control/step.h"

namespace gradmon {

// What monitoring costs a rank's training thread, measured under one plan by
// OverheadMeter, which says what the share is of. A value.
struct Overhead {
  Revision revision;           // of that plan
  std::int64_t collected = 0;  // collected steps measured so far; 0: nothing is known yet
  double share = 0;            // over the last of them: 0.01 is 1 % of the training time
  std::int64_t steps = 0;      // that the share is over, collected or not
};

// A share for people: "4.1 %".
std::string percent_text(double share);

}  // namespace gradmon
