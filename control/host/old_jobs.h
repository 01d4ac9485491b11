// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <set>
#include <string>

#include "control/host/job_directory.h"

namespace gradmon {

// Removes everything older than `max_age` and all but the newest `max_count`, but nothing younger than
// `min_age`.
struct RetentionPolicy {
  std::chrono::hours max_age{7 * 24};
  std::size_t max_count = 100;
  // A job that has just been created may not be locked by its hub yet.
  std::chrono::seconds min_age{600};
};

// Removes the old job directories in all `bases`, except `own` and directories locked by a hub. Killed jobs
// leave them behind. Removes only files that a hub writes: a directory with other files stays. Does file I/O.
void remove_old_jobs(const JobDirectory& own, const JobBases& bases, const RetentionPolicy& policy = {});

// Removes old histories (history_file.h) from an output directory, except those of the epochs `running`: a
// job writes its history only when something changes. Does file I/O.
void remove_old_histories(const std::filesystem::path& output_dir, const std::set<std::string>& running,
                          const RetentionPolicy& policy = {});

}  // namespace gradmon
