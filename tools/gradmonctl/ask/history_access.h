// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_selector.h"

namespace gradmon {

// Why this user may not read the history of the newest job in an output directory
// (access_denial.h); "" if the user may, or if there is no history.
std::string history_denial(const std::filesystem::path& output_dir);

// As with_job(). But if there is no live job, and the files in the output directory may stand for it, runs
// `command` with an AskJob that fails. `has_files`: there are such files.
int with_job_or_files(const JobSelector& selector, const Console& console,
                      const std::function<bool()>& has_files,
                      const std::function<int(const AskJob&)>& command);

}  // namespace gradmon
