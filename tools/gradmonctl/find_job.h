// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/net/discovery.h"
#include "tools/gradmonctl/command_line.h"
#include "tools/gradmonctl/console.h"

namespace gradmon {

// --output-dir, else MONITOR_OUTPUT_DIR, else ./monitor_output.
std::string output_directory(const JobPlace& place);

struct NoJob {
  int code = kExitNoAnswer;  // kExitUsage where there are several
  std::string message;       // for people; may have several lines
};

// The endpoint of the job that is meant: --endpoint, else GRADMON_ENDPOINT
// (unless --output-dir is given), else that of the only live job in the output
// directory's gradmon.json.
tl::expected<std::string, NoJob> find_endpoint(const JobPlace& place);

// The part that decides: `jobs` are the live ones, `directory` is for the message.
tl::expected<std::string, NoJob> only_job(const std::vector<JobEntry>& jobs, const std::string& directory);

}  // namespace gradmon
