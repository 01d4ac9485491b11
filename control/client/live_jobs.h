// SPDX-License-Identifier: Apache-2.0
// Finds the jobs that can be asked. For programs with one thread: reads disks in a child process.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/client/hub_query.h"
#include "control/hub/rendezvous/job_entry.h"

namespace gradmon {

struct LiveJobs {
  std::vector<JobEntry> jobs;
  // Sentences: hubs and disks that do not answer. Their jobs are missing from `jobs`.
  std::vector<std::string> unanswered;
  // Sentences: directories that this user may not read (access_denial.h); likewise.
  std::vector<std::string> denied = {};
  std::set<std::string> ended =
      {};  // endpoints of `jobs` whose ranks have all gone and whose hub is about to end
};

// Returns true for a job with that output directory, compared as text. For query_all_hubs().
std::function<bool(const Status&)> writes_into(const std::filesystem::path& output_dir);

// The jobs with that output directory. Of this host: the jobs whose hub answers over its socket and names
// this directory. If none of the job_bases() does, also the hubs that run elsewhere, and those that entries
// in the directory name: an entry of another user, or one that leads to a directory that fails
// JobDirectory::check(), is ignored. Of other hosts: the jobs that are listed in the directory and listen on
// TCP. The directory is read only if no job of this host has this path, and for one second at most.
LiveJobs live_jobs(const std::filesystem::path& output_dir);
// The same, but these hubs of this host have replied already.
LiveJobs live_jobs(const std::filesystem::path& output_dir, HubReplies replies);

// All jobs whose hubs on this host have replied. As in live_jobs(), a job without ranks, whose hub is about
// to end, is left out if there is another one: it may have been restarted.
LiveJobs jobs_of_this_host(const HubReplies& replies);

// Whether a hub listens at "ipc://PATH"; none for any other endpoint.
std::optional<bool> hub_is_listening(const std::string& endpoint);

}  // namespace gradmon
