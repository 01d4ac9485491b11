// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "control/agree/journal.h"
#include "tools/gradmonctl/listing.h"

namespace gradmon {

// For people: a table, one change a line, in the order in which they came.
// Where ranks applied one revision at different steps, each step is named.
Listing history_listing(const std::vector<HistoryEntry>& history);
std::string history_text(const std::vector<HistoryEntry>& history);

}  // namespace gradmon
