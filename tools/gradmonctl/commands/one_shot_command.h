// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_selector.h"

namespace gradmon {

// A request of cancel or evict.
struct OneShotRequest {
  JobSelector selector;
  CommandVerb verb = CommandVerb::cancel;
  std::optional<std::int64_t> rank = {};  // evict only
};

// gradmonctl cancel and evict: sends one command, and prints the job's answer to
// `console.err`. Returns the exit code.
int one_shot_command(const OneShotRequest& request, const AskJob& ask, const Console& console);

}  // namespace gradmon
