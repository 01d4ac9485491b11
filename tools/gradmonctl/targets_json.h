// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "control/agree/plan_probe.h"
#include "tools/gradmonctl/json_rule.h"

namespace gradmon {

std::string targets_json(const std::vector<ProbeResult::Answer>& answers, JsonLayout layout);

}  // namespace gradmon
