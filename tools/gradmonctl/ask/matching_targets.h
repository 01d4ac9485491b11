// SPDX-License-Identifier: Apache-2.0
// A target is a name of the model that the config's `targets` match. A series is one
// kind of record of one name: what a rank watches. How many targets match is asked of
// the ranks in one way, and said in one way, so that all commands count alike.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/gradmonctl/ask/job.h"

namespace gradmon {

using MatchingTargets = std::map<int, std::int64_t>;  // rank to count; a rank that does not tell is not in it

// What the ranks have answered to a plan that is only tried (CommandVerb::dry_run_targets).
MatchingTargets matching_targets(const CommandReply& tried);
// Asks the job what would match under its config with `edits`.
MatchingTargets matching_with(const std::vector<std::pair<std::string, std::string>>& edits,
                              const AskJob& ask);
// Asks the job what matches under the plan in force.
MatchingTargets matching_now(const AskJob& ask);

// "12 targets match"
std::string matching_text(std::int64_t count);

}  // namespace gradmon
