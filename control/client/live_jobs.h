// SPDX-License-Identifier: Apache-2.0
// Finds the jobs that can be asked. For programs with one thread: reads disks in a child process.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "control/hub/rendezvous/job_entry.h"

namespace gradmon {

struct LiveJobs {
  std::vector<JobEntry> jobs;
  // Sentences: hubs and disks that do not answer. Their jobs are missing from `jobs`.
  std::vector<std::string> unanswered;
  // Sentences: directories that this user may not read (access_denial.h); likewise.
  std::vector<std::string> denied = {};
};

// The jobs with that output directory. Of this host: the jobs whose hub answers over its socket; nothing
// in the output directory is needed or trusted for that. Of other hosts: the jobs that are listed in the
// directory and listen on TCP. The directory is read only if no job of this host has this path, and for
// one second at most.
LiveJobs live_jobs(const std::filesystem::path& output_dir);

// All jobs of this user on this host. If `name` is the name or launch id of one, the others get less
// time to answer (hub_survey.h).
LiveJobs jobs_of_this_host(const std::string& name = "");

// Whether a hub listens at "ipc://PATH"; none for any other endpoint.
std::optional<bool> hub_is_there(const std::string& endpoint);

}  // namespace gradmon
