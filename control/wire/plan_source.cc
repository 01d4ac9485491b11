// SPDX-License-Identifier: Apache-2.0
#include "control/wire/plan_source.h"

#include <utility>

#include "control/config/file_content.h"

namespace gradmon {

tl::expected<PlanSource, std::string> plan_from_config(const std::string& text,
                                                       const std::string& file_name) {
  auto parsed = parse_config(text, file_name);
  if (!parsed) return tl::unexpected(to_string(parsed.error()));
  PlanSource source;
  source.config = std::move(parsed->config);
  for (const ConfigWarning& warning : parsed->warnings) {
    source.warnings.push_back(to_string(warning));
    if (!warning.unknown.empty()) source.unknown.push_back(warning.unknown);
  }
  source.plan = std::make_shared<Plan>();
  source.plan->on = source.config.dynamic_on;
  source.plan->config_text = text;
  source.plan->config_sha256 = sha256_hex(text);
  source.plan->collect_times = source.config.collect_times;
  source.plan->step_interval = source.config.step_interval;
  source.plan->lookahead = source.config.lookahead_steps;
  source.plan->max_wait = source.config.max_wait;
  source.plan->max_overhead = source.config.max_overhead;
  return source;
}

}  // namespace gradmon
