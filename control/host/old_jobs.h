// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>

#include "control/host/job_directory.h"

namespace gradmon {

// What is removed: everything older than `older_than`, and all but the newest `more_than`, but nothing
// younger than `young`.
struct OldJobs {
  std::chrono::hours older_than{7 * 24};
  std::size_t more_than = 100;
  // A job that has just been created may not be locked by its hub yet.
  std::chrono::seconds young{600};
};

// Removes old job directories beside `own` that no hub has locked; jobs that were killed leave them
// behind. Does file I/O.
void remove_old_jobs(const JobDirectory& own, const OldJobs& which = {});

// Removes old histories (history_file.h) of epochs other than `own` from an output directory. Does file
// I/O.
void remove_old_histories(const std::filesystem::path& output_dir, const std::string& own,
                          const OldJobs& which = {});

}  // namespace gradmon
