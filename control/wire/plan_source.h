// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/agree/plan.h"
#include "control/config/config.h"
#include "control/config/config_parser.h"

namespace gradmon {

// A plan made from a config text: the text, which every rank parses again, and the values that the agreement
// needs. `dynamic_on` turns the plan on or off.
struct PlanSource {
  std::shared_ptr<Plan> plan;  // the caller sets cause, by, request_id and file
  Config config;
  std::vector<std::string> warnings;
  std::vector<std::string> unknown;  // ConfigWarning::unknown of the warnings that have it
};

// The error lists all errors of the text, one per line.
tl::expected<PlanSource, std::string> plan_from_config(const std::string& text, const std::string& file_name);

}  // namespace gradmon
