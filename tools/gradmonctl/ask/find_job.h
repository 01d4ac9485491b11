// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/client/live_jobs.h"
#include "tools/gradmonctl/ask/job_selector.h"
#include "tools/gradmonctl/cli/console.h"

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

// The decisions of find_endpoint(), pure.
// The jobs with this name; if none has it, the jobs with this launch id.
std::vector<JobEntry> jobs_named(const std::string& name, std::vector<JobEntry> jobs);
// The endpoint of the only job; an error for none or several. A job that has ended counts only without
// another: it may have been restarted. `which` describes the search in messages: "named train.py".
tl::expected<std::string, JobLookupError> only_job(const LiveJobs& live, const std::string& which);

}  // namespace gradmon
