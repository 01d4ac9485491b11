// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "control/agree/journal.h"
#include "tools/gradmonctl/json_rule.h"

namespace gradmon {

// What became of every change, as one JSON object, by the rules of json_rule.h;
// a revision of 0 is null.
std::string history_json(const std::vector<HistoryEntry>& history, JsonLayout layout);

}  // namespace gradmon
