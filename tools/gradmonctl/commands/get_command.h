// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_selector.h"

namespace gradmon {

struct GetRequest {
  JobSelector selector;
  std::string key;   // "": the whole config
  std::string file;  // "": ask the job
};

// gradmonctl get: prints a job's config in force, or one value of it. Mentions a pending
// change on `console.err`. Returns the exit code.
int get_command(const GetRequest& request, const AskJob& ask, const Console& console);

// The same for a file, without a job.
int get_from_file(const GetRequest& request, const Console& console);

}  // namespace gradmon
