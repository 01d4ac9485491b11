// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "control/agree/plan_probe.h"

namespace gradmon {

// For people. Ranks that say the same are shown as one; rank 0 lists all that it
// watches, the others only what is silent or unmatched.
std::string targets_text(const std::vector<ProbeResult::Answer>& answers);

}  // namespace gradmon
