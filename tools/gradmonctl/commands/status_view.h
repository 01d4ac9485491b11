// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "control/agree/journal.h"
#include "tools/gradmonctl/show/json_rule.h"
#include "tools/gradmonctl/show/listing.h"

namespace gradmon {

// The answer in one line, without its line feed:
//   ON since step 1200 · 3 of 5 collections left · 4/4 ranks agree (revision 7) · 0 rows dropped
//   OFF: finished · 4/4 ranks agree (revision 7) · 0 rows dropped
//   OFF: rejected by rank 3: no target matches · 4/4 ranks agree (revision 7) · 0 rows dropped
//   OFF, revision 8 pending: waiting for the answer of rank 3 · training has waited 1.5 s ·
//     2/3 ranks agree (revision 7), without rank 1 (dropped) · 0 rows dropped
// UTF-8 whatever the locale says: scripts look for these bytes.
std::string status_line(const Status& status);

// For people: the line, a table of ranks with what keeps each from agreeing, and
// what disturbs.
Listing status_listing(const Status& status);
std::string status_text(const Status& status);

// The whole status as one JSON object, by the rules of json_rule.h. A revision
// of 0 says that there is none yet.
std::string status_json(const Status& status, JsonLayout layout);

}  // namespace gradmon
