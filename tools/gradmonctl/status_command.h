// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/command_line.h"
#include "tools/gradmonctl/job.h"

namespace gradmon {

// gradmonctl status. With --watch again every second, until the job does not
// answer or nobody reads `console.out`. Returns the exit code.
int status_command(const StatusRequest& request, const AskJob& ask, const Pace& pace, const Console& console);

}  // namespace gradmon
