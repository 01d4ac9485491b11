// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/client/live_jobs.h"
#include "tools/gradmonctl/ask/job_place.h"
#include "tools/gradmonctl/show/console.h"

namespace gradmon {

// --output-dir, else MONITOR_OUTPUT_DIR, else ./monitor_output.
std::string output_directory(const JobPlace& place);

struct NoJob {
  int code = kExitNoAnswer;  // kExitUsage where there are several, kExitNotAllowed where nobody may look
  std::string message;       // for people; may have several lines
};

// --job, else GRADMON_JOB where no output directory is given; "" where neither names one.
std::string chosen_name(const JobPlace& place);

// The endpoint of the job that is meant: --endpoint, else the one that --job or
// --output-dir choose, else GRADMON_ENDPOINT, else the one that GRADMON_JOB or the
// output directory choose. A name is looked for among this user's jobs on this host,
// then in the output directory (.gradmon/jobs), which names those of other hosts.
tl::expected<std::string, NoJob> find_endpoint(const JobPlace& place);

// The parts that decide. Those of `jobs` with that name, or where there are none
// with that launch id.
std::vector<JobEntry> jobs_named(const std::string& name, std::vector<JobEntry> jobs);
// `which` says which were looked for: "named train.py".
tl::expected<std::string, NoJob> only_job(const LiveJobs& live, const std::string& which);

}  // namespace gradmon
