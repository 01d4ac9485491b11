// SPDX-License-Identifier: Apache-2.0
// The jobs that can be asked. Of a program with one thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "control/hub/rendezvous/job_entry.h"

namespace gradmon {

struct LiveJobs {
  std::vector<JobEntry> jobs;
  // Sentences: a hub or a disk that does not answer, so that a job may be missing above.
  std::vector<std::string> unanswered;
  // Sentences: a directory that this user may not read (access_denial.h); likewise.
  std::vector<std::string> denied = {};
};

// Those with that output directory: of this host the ones whose hub answers, asked
// over their sockets, so that nothing in the output directory is needed or believed;
// of other hosts those that the directory names and that listen. The directory's disk
// is looked at only where no job of this host has this path, and for a second at most.
LiveJobs live_jobs(const std::filesystem::path& output_dir);

// All of this user's on this host; where `name` is a job's name or launch id, the
// others are not waited for long.
LiveJobs jobs_of_this_host(const std::string& name = "");

// Whether somebody listens at "ipc://PATH"; none: of an endpoint elsewhere nobody can tell.
std::optional<bool> hub_is_there(const std::string& endpoint);

}  // namespace gradmon
