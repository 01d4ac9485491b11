// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "control/alerts/alert_report.h"
#include "control/wire/command.h"
#include "tools/gradmonctl/cli/json_rule.h"
#include "tools/gradmonctl/cli/listing.h"

namespace gradmon {

// A table with one line for each alert of the reply, and the number of other alerts raised by the ranks.
Listing alerts_listing(const CommandReply& reply);
// A table with one line for each step and rule of the reply: its ranks, its number of series and its first
// alert. The first line of each rule comes first; the others follow by rising step.
Listing alert_groups_listing(const CommandReply& reply);

// One line, with a line feed: "2026-07-06 12:34:56 UTC  rank 3  MESSAGE".
std::string alert_line(const RankAlert& alert);

// One JSON object that follows json_rule.h, with the alerts in the form of control/alerts/alert_json.h.
std::string alerts_json(const CommandReply& reply, JsonLayout layout);
// The object of one alert, on one line.
std::string alert_json(const RankAlert& alert);

}  // namespace gradmon
