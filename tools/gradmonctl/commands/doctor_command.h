// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_place.h"

namespace gradmon {

struct DoctorRequest {
  JobPlace place;
  std::string file;  // the config file; "": that of the live job, else ./monitor_config.json
  bool json = false;
};

// gradmonctl doctor: what a live job says of itself (where `ask` reaches one),
// and whether this host has what gradmon needs. The config file is that of --config,
// else the job's. Returns the exit code: 1 where a finding is a failure, as a config
// file with a fault is.
int doctor_command(const DoctorRequest& request, const AskJob& ask, const Console& console);

}  // namespace gradmon
