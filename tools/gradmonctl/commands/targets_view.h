// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/agree/dry_run.h"
#include "tools/gradmonctl/ask/match_counts.h"
#include "tools/gradmonctl/show/json_rule.h"
#include "tools/gradmonctl/show/listing.h"

namespace gradmon {

enum class TargetsOf : std::uint8_t { plan_in_force, plan_tried };

// Readable; each line is an entry of the listing. Ranks with the same answer share an entry. Rank 0 lists all
// its series; the other ranks list only silent or unmatched entries.
Listing targets_listing(const std::vector<DryRunResult::Answer>& answers, const MatchCounts& matching,
                        TargetsOf plan);

// JSON: "matching" counts targets (match_counts.h); "watched" and "silent" count series.
std::string targets_json(const std::vector<DryRunResult::Answer>& answers, const MatchCounts& matching,
                         JsonLayout layout);

}  // namespace gradmon
