// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "control/agree/journal.h"
#include "tools/gradmonctl/cli/json_rule.h"
#include "tools/gradmonctl/cli/listing.h"

namespace gradmon {

// The status in one line, without a line feed:
//   ON since step 1200 · 3 of 5 collections left · 4/4 ranks agree (revision 7) · 0 rows dropped
//   OFF: finished · 4/4 ranks agree (revision 7) · 0 rows dropped
//   OFF: rejected by rank 3: no target matches · 4/4 ranks agree (revision 7) · 0 rows dropped
//   OFF, revision 8 pending: waiting for the answer of rank 3 · training has waited 1.5 s ·
//     2/3 ranks agree (revision 7), without rank 1 (dropped) · 0 rows dropped
// UTF-8 in every locale: scripts search for these bytes.
std::string status_line(const Status& status);

// Readable: the status line, a table of the ranks with the reason why each does not agree,
// and problems.
Listing status_listing(const Status& status);

// The whole status as one JSON object that follows json_rule.h. A revision of 0 means none yet.
std::string status_json(const Status& status, JsonLayout layout);

}  // namespace gradmon
