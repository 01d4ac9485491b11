// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/live_job.h"
#include "tools/gradmonctl/ask/job_place.h"

namespace gradmon {

struct WatchRequest {
  JobPlace place;
  bool json = false;
};

// gradmonctl watch: shows the state each second, until the job has ended (its hub
// is gone at two looks in a row), the user interrupts, or nobody reads any more (0
// each), or the job does not answer and nothing tells whether it has ended (4).
// Returns the exit code.
int watch_command(const WatchRequest& request, const LiveJob& job, const Console& console);

}  // namespace gradmon
