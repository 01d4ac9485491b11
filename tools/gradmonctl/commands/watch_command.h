// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_selector.h"
#include "tools/gradmonctl/ask/live_job.h"

namespace gradmon {

struct WatchRequest {
  JobSelector selector;
  bool json = false;
};

// gradmonctl watch: shows the status each second. Returns the exit code: 0 when the job has
// ended (its hub is gone in two checks in a row), the user interrupts, or `console.out`
// fails; 4 when the job does not answer and it is unknown whether the job has ended.
int watch_command(const WatchRequest& request, const LiveJob& job, const Console& console);

}  // namespace gradmon
