// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_selector.h"

namespace gradmon {

// The reason why this user may not read the history of the newest job in an output directory
// (access_denial.h); "" if the user may, or without a history.
std::string history_denial(const std::filesystem::path& output_dir);

// Like with_job(). But without a live job, if the files in the output directory may replace it, runs
// `command` with an AskJob that fails. `has_files`: true if such files exist.
int with_job_or_files(const JobSelector& selector, const Console& console,
                      const std::function<bool()>& has_files,
                      const std::function<int(const AskJob&)>& command);

}  // namespace gradmon
