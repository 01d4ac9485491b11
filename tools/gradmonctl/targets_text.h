// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/agree/plan_probe.h"
#include "tools/gradmonctl/matching_targets.h"

namespace gradmon {

enum class TargetsOf : std::uint8_t { plan_in_force, plan_tried };

// For people. Ranks that say the same are shown as one; rank 0 lists all that it
// watches, the others only what is silent or unmatched.
std::string targets_text(const std::vector<ProbeResult::Answer>& answers, const MatchingTargets& matching,
                         TargetsOf plan);

}  // namespace gradmon
