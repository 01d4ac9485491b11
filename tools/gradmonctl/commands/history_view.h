// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "control/agree/journal.h"
#include "tools/gradmonctl/show/json_rule.h"
#include "tools/gradmonctl/show/listing.h"

namespace gradmon {

// For people: a table, one change a line, in the order in which they came.
// Where ranks applied one revision at different steps, each step is named.
Listing history_listing(const std::vector<HistoryEntry>& history);
std::string history_text(const std::vector<HistoryEntry>& history);

// What became of every change, as one JSON object, by the rules of json_rule.h;
// a revision of 0 is null.
std::string history_json(const std::vector<HistoryEntry>& history, JsonLayout layout);

}  // namespace gradmon
