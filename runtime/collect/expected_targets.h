// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "control/config/config.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/rows/reading.h"
#include "hooks/rows/target_match.h"
#include "hooks/rows/watched_model.h"
#include "runtime/collect/target_ledger.h"

namespace gradmon {

// The rows that each collected step should have for the plan's parameters (HookSet::parameters()) and
// modules, grouped by kind, each with the reason why it may be silent. Skips containers that only `all`
// selects: many never run. Training thread: reads the tensors.
std::vector<ExpectedTarget> expected_targets(const HookSettings& settings, const WatchedModel& model,
                                             const std::vector<WatchedTensor>& parameters, NameTable& names);
// A sentence about the parameters whose gradient before reduction is never seen; "" without any.
std::string never_unreduced(const std::vector<WatchedTensor>& parameters);
// Dry run: the watched `names` that a config would select. The kinds are unknown until hooks attach. Any
// thread.
TargetList dry_run_target_list(const Config& config, const std::vector<TargetName>& names);
// Upper bound for the number of targets that a config selects. An unmatched name counts if it may be a
// tap, which is not known before the program taps it. At least 1 if a kind needs no target. 0: the
// config can select nothing. Any thread.
std::int64_t possible_matches(const Config& config, const std::vector<TargetName>& names);
std::vector<UnmatchedTarget> unmatched_targets(const MatchReport& matches);

}  // namespace gradmon
