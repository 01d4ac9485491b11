// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_place.h"

namespace gradmon {

struct GetRequest {
  JobPlace place;
  std::string key;   // "": the whole config
  std::string file;  // "": ask the job
};

// gradmonctl get: the config that a job has in force, or one value of it. A
// change that is pending is mentioned on `console.err`. Returns the exit code.
int get_command(const GetRequest& request, const AskJob& ask, const Console& console);

// The same of a file, without a job.
int get_from_file(const GetRequest& request, const Console& console);

}  // namespace gradmon
