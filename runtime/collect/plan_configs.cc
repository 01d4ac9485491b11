// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/plan_configs.h"

#include <algorithm>
#include <utility>

#include "control/config/config_parser.h"

namespace gradmon {
namespace {

constexpr std::size_t kMostKept = 2;

}  // namespace

// Parses without the lock: the training thread must not wait for another plan's text.
PlanConfigs::Result PlanConfigs::of(const Plan& plan) {
  {
    const std::lock_guard lock(mutex_);
    const auto kept = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.config_sha256 == plan.config_sha256;
    });
    if (kept != entries_.end()) {
      std::rotate(entries_.begin(), kept, kept + 1);
      return entries_.front().config;
    }
  }
  auto parsed = parse_config(plan.config_text, file_name_);
  Result config = tl::unexpected(std::string());
  if (parsed) {
    config = std::make_shared<const Config>(std::move(parsed->config));
  } else {
    config = tl::unexpected(to_string(parsed.error()));
  }
  add({plan.config_sha256, config});
  return config;
}

void PlanConfigs::keep(const Plan& plan, Config config) {
  add({plan.config_sha256, std::make_shared<const Config>(std::move(config))});
}

void PlanConfigs::add(Entry entry) {
  const std::lock_guard lock(mutex_);
  entries_.erase(std::remove_if(entries_.begin(), entries_.end(),
                                [&](const Entry& kept) { return kept.config_sha256 == entry.config_sha256; }),
                 entries_.end());
  entries_.insert(entries_.begin(), std::move(entry));
  if (entries_.size() > kMostKept) entries_.pop_back();
}

}  // namespace gradmon
