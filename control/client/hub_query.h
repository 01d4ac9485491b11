// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "control/agree/journal.h"
#include "control/host/job_directory.h"

namespace gradmon {

// The status replies of this user's hubs on this host, one for each job.
struct HubReplies {
  struct Answer {
    std::string endpoint;
    Status status;
  };
  std::vector<Answer> answers;
  // Sentences: hubs that accept a connection but do not reply, or refuse the status with a reason.
  std::vector<std::string> unresponsive;
  std::vector<JobDirectory> asked = {};
};

// Asks the hubs of these directories in parallel. Waits 3 s for replies, but only 1 s once a `wanted` job is
// found. Until then a restarting hub, with or without its socket, has 1 s to come back.
HubReplies query_hubs(std::vector<JobDirectory> directories,
                      const std::function<bool(const Status&)>& wanted);
// Asks all hubs of this user on this host: the hubs of the job_bases(), and hubs that run elsewhere.
HubReplies query_all_hubs(const std::function<bool(const Status&)>& wanted);

// The directories of the gradmon-hub processes of this user, in any environment, that pass
// JobDirectory::check(). For programs with one thread: reads /proc in a child process, for at most one
// second.
std::vector<JobDirectory> directories_of_hub_processes();

}  // namespace gradmon
