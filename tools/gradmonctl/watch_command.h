// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/command_line.h"
#include "tools/gradmonctl/job.h"

namespace gradmon {

// A live job, as `watch` follows it; tests put a fake one here.
struct LiveJob {
  AskJob ask;
  std::function<std::optional<Status>(std::chrono::milliseconds)> next_state;  // after so long
  std::function<std::optional<bool>()> lives;  // none: nothing tells, but its answers
  std::function<bool()> interrupted;           // by the user; asked after the first answer only
  std::function<WallTime()> now;
};

// gradmonctl watch: shows the state each second, until the job has ended (its hub
// is gone at two looks in a row), the user interrupts, or nobody reads any more (0
// each), or the job does not answer and nothing tells whether it has ended (4).
// Returns the exit code.
int watch_command(const WatchRequest& request, const LiveJob& job, const Console& console);

}  // namespace gradmon
