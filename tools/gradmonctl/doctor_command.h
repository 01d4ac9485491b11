// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/command_line.h"
#include "tools/gradmonctl/job.h"

namespace gradmon {

// gradmonctl doctor: what a live job says of itself (where `ask` reaches one),
// and whether this host has what gradmon needs. The config file is that of --config,
// else the job's. Returns the exit code: 1 where a finding is a failure, as a config
// file with a fault is.
int doctor_command(const DoctorRequest& request, const AskJob& ask, const Console& console);

}  // namespace gradmon
