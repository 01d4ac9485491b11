// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "control/hub/rendezvous/job_entry.h"
#include "tools/gradmonctl/ask/job.h"

namespace gradmon {

// A request to list all jobs of this user on this host.
struct JobsRequest {
  bool json = false;
  bool all = false;  // also print every job and whole lines in a terminal
};

// The result of the search for this user's jobs on this host.
struct FoundHere {
  std::vector<JobEntry> jobs;
  std::vector<std::string> refused;          // directories that cannot be trusted, one readable line each
  std::vector<std::string> unanswered = {};  // LiveJobs::unanswered
};

// gradmonctl jobs: asks each job for its status and lists the jobs. `ask_at` returns the
// connection to an endpoint. Returns the exit code.
int jobs_command(const JobsRequest& request, const FoundHere& found,
                 const std::function<AskJob(const std::string& endpoint)>& ask_at, const Console& console);

}  // namespace gradmon
