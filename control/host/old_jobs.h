// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>

#include "control/host/job_directory.h"

namespace gradmon {

struct OldJobs {
  std::chrono::hours older_than{7 * 24};
  std::size_t more_than = 100;  // the newest stay
  // One so young may be in the making: no hub has locked it yet.
  std::chrono::seconds young{600};
};

// Removes what jobs that have ended, or were killed, have left beside `own`: the
// directories that no hub holds, where they are old or too many. Does file I/O.
void remove_old_jobs(const JobDirectory& own, const OldJobs& which = {});

// The same in an output directory: the histories of epochs other than `own` (history_file.h).
void remove_old_histories(const std::filesystem::path& output_dir, const std::string& own,
                          const OldJobs& which = {});

}  // namespace gradmon
