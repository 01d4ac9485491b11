// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/command_line.h"
#include "tools/gradmonctl/job.h"

namespace gradmon {

// gradmonctl get: the config that a job has in force, or one value of it. A
// change that is pending is mentioned on `console.err`. Returns the exit code.
int get_command(const GetRequest& request, const AskJob& ask, const Console& console);

// The same of a file, without a job.
int get_from_file(const GetRequest& request, const Console& console);

}  // namespace gradmon
