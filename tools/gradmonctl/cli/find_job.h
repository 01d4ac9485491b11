// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/hub/transport/curve_keys.h"
#include "control/hub/transport/live_jobs.h"
#include "tools/gradmonctl/cli/console.h"
#include "tools/gradmonctl/cli/job.h"

namespace gradmon {

// --output-dir, else MONITOR_OUTPUT_DIR, else ./monitor_output.
std::string output_directory(const JobSelector& selector);

struct JobLookupError {
  int code = kExitNoAnswer;  // kExitUsage: several jobs; kExitNotAllowed: access is denied
  std::string message;       // readable; may have several lines
};

// --job, else GRADMON_JOB if --output-dir is not given; "" if neither names a job.
std::string chosen_name(const JobSelector& selector);

// The endpoint of the job: --endpoint, else the job of --job or --output-dir, else GRADMON_ENDPOINT, else the
// job of GRADMON_JOB or the output directory. Without --output-dir, searches a name among this user's jobs on
// this host, then in the output directory (.gradmon/jobs), which also lists jobs of other hosts. If nothing
// chooses a job and ./monitor_output has none, takes the only live job of this user on this host, and sets
// `*taken` to a sentence that names it.
tl::expected<std::string, JobLookupError> find_endpoint(const JobSelector& selector,
                                                        std::string* taken = nullptr);

// Names the only live job of this user on this host; "" if there is none, or several.
std::string only_live_job();

// The decisions of find_endpoint(), pure.
// The jobs with this name; if none has it, the jobs with this launch id.
std::vector<JobEntry> jobs_named(const std::string& name, std::vector<JobEntry> jobs);
// The endpoint of the only job; an error for none or several. A job that has ended counts only without
// another: it may have been restarted. `which` describes the search in messages: "named train.py".
tl::expected<std::string, JobLookupError> only_job(const LiveJobs& live, const std::string& which);

// The directory of keys for an endpoint; "" for none. --keys, else GRADMON_KEYS, else
// $XDG_CONFIG_HOME/gradmon/keys (or ~/.config/gradmon/keys) if it exists, but not for a
// loopback endpoint with GRADMON_INSECURE_LOOPBACK=1.
std::string key_directory(const JobSelector& selector, const std::string& endpoint);

// The client keys from that directory; nullopt for a Unix socket, or without a directory. The error: the keys
// in the directory are unusable.
tl::expected<std::optional<ClientKeys>, std::string> find_keys(const JobSelector& selector,
                                                               const std::string& endpoint);

// The reason why this user may not read the history of the newest job in an output directory
// (command_client.h); "" if the user may, or without a history.
std::string history_denial(const std::filesystem::path& output_dir);

// Like with_job(). But without a live job, if the files in the output directory may replace it, runs
// `command` with an AskJob that fails. `has_files`: true if such files exist.
int with_job_or_files(const JobSelector& selector, const Console& console,
                      const std::function<bool()>& has_files,
                      const std::function<int(const AskJob&)>& command);

}  // namespace gradmon
