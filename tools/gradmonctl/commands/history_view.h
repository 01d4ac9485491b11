// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "control/agree/journal.h"
#include "tools/gradmonctl/cli/json_rule.h"
#include "tools/gradmonctl/cli/listing.h"

namespace gradmon {

// A readable table: one line per change, in the order of arrival. Names each step if ranks applied a revision
// at different steps.
Listing history_listing(const std::vector<HistoryEntry>& history);

// The outcome of every change, as one JSON object that follows json_rule.h. A revision of 0 is null, and so
// is the on or off of a refused config file.
std::string history_json(const std::vector<HistoryEntry>& history, JsonLayout layout);

}  // namespace gradmon
