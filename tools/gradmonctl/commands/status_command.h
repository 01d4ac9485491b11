// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_selector.h"

namespace gradmon {

struct StatusRequest {
  JobSelector selector;
  bool watch = false;
  bool json = false;
  bool all = false;  // also print every rank and whole lines in a terminal
};

// gradmonctl status. With --watch it repeats every second, until the job does not answer or
// `console.out` fails. Returns the exit code.
int status_command(const StatusRequest& request, const AskJob& ask, const CommandClock& clock,
                   const Console& console);

}  // namespace gradmon
