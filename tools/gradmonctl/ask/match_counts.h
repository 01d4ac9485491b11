// SPDX-License-Identifier: Apache-2.0
// A target is a name of the model that the config's `targets` match. A series is one
// kind of record of one name; ranks watch series. All commands count and print matching
// targets with these functions, so that their numbers agree.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/gradmonctl/ask/job.h"

namespace gradmon {

using MatchCounts = std::map<int, std::int64_t>;  // rank to count; a rank that gave no count is absent

// The ranks' answers to a dry run (CommandVerb::dry_run_targets).
MatchCounts match_counts(const CommandReply& tried);
// Asks the job how many targets would match under its config with `edits`.
MatchCounts matching_with(const std::vector<std::pair<std::string, std::string>>& edits, const AskJob& ask);
// Asks the job how many targets match under the plan in force.
MatchCounts matching_now(const AskJob& ask);

// "12 targets match"
std::string matching_text(std::int64_t count);

}  // namespace gradmon
