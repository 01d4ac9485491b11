// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "control/client/hub_query.h"
#include "tools/gradmonctl/cli/console.h"

namespace gradmon {

// A request to list all jobs of this user on this host.
struct JobsRequest {
  bool json = false;
  bool all = false;  // also print every job and whole lines in a terminal
};

// gradmonctl jobs: lists the jobs whose hubs replied; other hubs and `refused` go to `console.err`.
// `refused`: directories that cannot be trusted, one readable line each. Returns the exit code.
int jobs_command(const JobsRequest& request, const HubReplies& replies,
                 const std::vector<std::string>& refused, const Console& console);

}  // namespace gradmon
