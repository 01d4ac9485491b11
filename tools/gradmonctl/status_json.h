// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "control/agree/journal.h"
#include "tools/gradmonctl/json_rule.h"

namespace gradmon {

// The whole status as one JSON object, by the rules of json_rule.h. A revision
// of 0 says that there is none yet.
std::string status_json(const Status& status, JsonLayout layout);

}  // namespace gradmon
