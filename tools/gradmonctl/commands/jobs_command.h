// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "control/hub/rendezvous/job_entry.h"
#include "tools/gradmonctl/ask/job.h"

namespace gradmon {

// All jobs of this user on this host.
struct JobsRequest {
  bool json = false;
  bool all = false;  // in a terminal, too: every job, and whole lines
};

// This user's jobs on this host, as they were found.
struct FoundHere {
  std::vector<JobEntry> jobs;
  std::vector<std::string> refused;          // directories that cannot be trusted: a line for people each
  std::vector<std::string> unanswered = {};  // as LiveJobs has them
};

// gradmonctl jobs: asks each for its state, and lists them. `ask_at` gives the
// asking end of an endpoint. Returns the exit code.
int jobs_command(const JobsRequest& request, const FoundHere& found,
                 const std::function<AskJob(const std::string& endpoint)>& ask_at, const Console& console);

}  // namespace gradmon
