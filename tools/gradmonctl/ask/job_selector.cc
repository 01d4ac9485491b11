// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/job_selector.h"

#include <algorithm>

namespace gradmon {

void add_job_options(Arguments& arguments, JobSelector& selector) {
  arguments.push_back({"--endpoint", &selector.endpoint,
                       "the job, as ipc://PATH or tcp://HOST:PORT\n(default: GRADMON_ENDPOINT, else the one "
                       "live job\nof that name or with that output directory)",
                       "ENDPOINT"});
  arguments.push_back({"--job", &selector.job,
                       "the job's name or launch id, as `gradmonctl jobs` lists them\n(default: GRADMON_JOB)",
                       "NAME"});
  const bool first = std::none_of(arguments.begin(), arguments.end(),
                                  [](const Argument& other) { return other.name.front() != '-'; });
  arguments.push_back({first ? "RUN,--output-dir" : "--output-dir", &selector.output_dir,
                       "the job's output directory" + std::string(first ? "; also: --output-dir RUN" : "") +
                           "\n(default: MONITOR_OUTPUT_DIR, else ./monitor_output,\n"
                           "else that of your only live job)",
                       "RUN"});
  arguments.push_back({"--keys", &selector.keys,
                       "the directory of keys, for a TCP endpoint\n(default: GRADMON_KEYS, else "
                       "~/.config/gradmon/keys if it exists)",
                       "DIR"});
}

}  // namespace gradmon
