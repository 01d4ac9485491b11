// SPDX-License-Identifier: Apache-2.0
// The configs of plans (PlanConfigs), and their translation into settings for hooks/ and writers/, which must
// not include Config.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/agree/plan.h"
#include "control/config/config.h"
#include "control/step.h"
#include "hooks/rows/hook_settings.h"
#include "writers/queue/sink.h"

namespace gradmon {

// The parsed configs of the two plans used last. Plans are identified by `config_sha256`. Any thread.
class PlanConfigs {
 public:
  using Result = tl::expected<std::shared_ptr<const Config>, std::string>;

  // `file_name` is used in messages only.
  explicit PlanConfigs(std::string file_name) : file_name_(std::move(file_name)) {}

  // Parses the plan's config text unless the plan has its config, or it is kept. The error lists all errors
  // of the text.
  Result of(const Plan& plan);

 private:
  struct Entry {
    std::string config_sha256;
    Result config;
  };

  const std::string file_name_;
  std::mutex mutex_;
  std::vector<Entry> entries_;  // guarded by mutex_; the one used last is first
};

TargetSelection selection_of(const Config& config);
HookSettings to_hook_settings(const Config& config, Revision revision);
Layout layout_of(const Config& config, Revision revision);
// Returns true if `module_ranks` includes the rank (empty: all ranks).
bool includes_rank(const Config& config, Rank rank);

}  // namespace gradmon
