// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_selector.h"

namespace gradmon {

// A request of on, off or set. `command` has no request id and no author yet.
struct ChangeRequest {
  JobSelector selector;
  Command command;
  bool wait = false;
  bool dry_run = false;  // set only
  std::string file;      // set as a dry run: edit the text of this file, without a job; else ""
  std::chrono::seconds timeout{60};
};

// gradmonctl on, off and set. With --wait, polls for the verdict until every rank has applied it, and prints
// the effective step (nothing if no change was needed). Returns the exit code.
int change_command(const ChangeRequest& request, const AskJob& ask, const CommandClock& clock,
                   const Console& console);

// After `on` without a number of steps: prints how long the job collects, and its output per minute. Waits up
// to three seconds until every rank has applied the plan, because only then a rank knows its rows. Prints
// "unknown" instead of a figure that the job has not reported. Prints nothing if the job is off again.
void report_outlook(const AskJob& ask, const CommandClock& clock, const Console& console);

}  // namespace gradmon
