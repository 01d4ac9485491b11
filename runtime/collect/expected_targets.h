// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "control/config/config.h"
#include "hooks/names/target_match.h"
#include "hooks/names/watched_model.h"
#include "hooks/rows/hook_settings.h"
#include "runtime/collect/target_ledger.h"

namespace gradmon {

// What every collected step should have of the parameters and modules that a
// plan means, in the order of the kinds, each with why it may be silent.
// Containers that only `all` selects are not expected: many of them never run.
// Training thread: it looks at the tensors.
std::vector<ExpectedTarget> expected_targets(const HookSettings& settings, const WatchedModel& model,
                                             const MatchReport& matches, NameTable& names);
// What a config would watch of the names taken down in watch(); of which kinds is
// not known before it attaches. Any thread.
TargetList dry_run_target_list(const Config& config, const std::vector<TargetName>& names);
// How many targets a config means, or may mean: which names a program taps is
// known only once it has, and some kinds need no target. 0 where it can mean
// nothing. Any thread.
std::int64_t possible_matches(const Config& config, const std::vector<TargetName>& names);
std::vector<UnmatchedTarget> unmatched_targets(const MatchReport& matches);

}  // namespace gradmon
