// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "control/config/config.h"
#include "hooks/target_match.h"
#include "hooks/watched_model.h"
#include "runtime/target_ledger.h"

namespace gradmon {

// The rows that every collected step should have of the parameters that a
// config means, in the order of the kinds; frozen ones are known to stay silent
// in some. Training thread: it looks at the tensors.
std::vector<ExpectedTarget> expected_targets(const Config& config, const WatchedModel& model,
                                             const MatchReport& matches, NameTable& names);
// What a config would watch of the names taken down in watch(); of which kinds is
// not known before it attaches. Any thread.
TargetList foreseen_targets(const Config& config, const std::vector<TargetName>& names);
std::vector<UnmatchedTarget> unmatched_targets(const MatchReport& matches);

}  // namespace gradmon
