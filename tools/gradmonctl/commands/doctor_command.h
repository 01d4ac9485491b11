// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_selector.h"

namespace gradmon {

struct DoctorRequest {
  JobSelector selector;
  std::string file;  // the config file; "": the live job's, else ./monitor_config.json
  bool json = false;
};

// gradmonctl doctor: reports the status of a live job, if `ask` reaches one, and checks this host for
// gradmon's requirements. Returns the exit code: 1 if a finding is a failure, for example an invalid config
// file.
int doctor_command(const DoctorRequest& request, const AskJob& ask, const Console& console);

}  // namespace gradmon
