// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_place.h"

namespace gradmon {

struct StatusRequest {
  JobPlace place;
  bool watch = false;
  bool json = false;
  bool all = false;  // in a terminal, too: every rank, and whole lines
};

// gradmonctl status. With --watch again every second, until the job does not
// answer or nobody reads `console.out`. Returns the exit code.
int status_command(const StatusRequest& request, const AskJob& ask, const Pace& pace, const Console& console);

}  // namespace gradmon
