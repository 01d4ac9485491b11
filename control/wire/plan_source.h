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

// A config text as a plan: what the agreement must know of it, beside the text
// that every rank parses again. On or off is what `dynamic_on` says.
struct PlanSource {
  std::shared_ptr<Plan> plan;  // cause, by, request id and file are the caller's to set
  Config config;
  std::vector<std::string> warnings;
};

// The error: every fault of the file, a line each.
tl::expected<PlanSource, std::string> plan_from_config(const std::string& text, const std::string& file_name);

}  // namespace gradmon
