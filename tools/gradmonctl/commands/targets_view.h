// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/agree/dry_run.h"
#include "tools/gradmonctl/ask/matching_targets.h"
#include "tools/gradmonctl/show/json_rule.h"
#include "tools/gradmonctl/show/listing.h"

namespace gradmon {

enum class TargetsOf : std::uint8_t { plan_in_force, plan_tried };

// For people; each line is an entry of the list. Ranks that say the same are shown as
// one; rank 0 lists all that it watches, the others only what is silent or unmatched.
Listing targets_listing(const std::vector<DryRunResult::Answer>& answers, const MatchingTargets& matching,
                        TargetsOf plan);

// "matching": as matching_targets.h counts it; "watched" and "silent": series.
std::string targets_json(const std::vector<DryRunResult::Answer>& answers, const MatchingTargets& matching,
                         JsonLayout layout);

}  // namespace gradmon
