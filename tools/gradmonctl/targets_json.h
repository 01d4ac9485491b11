// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "control/agree/plan_probe.h"
#include "tools/gradmonctl/json_rule.h"
#include "tools/gradmonctl/matching_targets.h"

namespace gradmon {

// "matching": as matching_targets.h counts it; "watched" and "silent": series.
std::string targets_json(const std::vector<ProbeResult::Answer>& answers, const MatchingTargets& matching,
                         JsonLayout layout);

}  // namespace gradmon
