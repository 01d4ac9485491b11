// SPDX-License-Identifier: Apache-2.0
// The job behind a place, over the real network.
#pragma once

#include <functional>
#include <string>
#include <tl/expected.hpp>

#include "tools/gradmonctl/ask/find_job.h"
#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_place.h"

namespace gradmon {

Pace real_pace();

// Finds the job and its keys. It is asked for the first time when the value is called.
tl::expected<AskJob, NoJob> connect(const JobPlace& place);
// The same of an endpoint of this host, which needs no keys.
AskJob connect_here(const std::string& endpoint);
// Answers each question with the error that there is no job.
AskJob ask_nobody(const NoJob& problem);

// Says on `console.err` that there is no job. Returns the exit code.
int give_up(const NoJob& problem, const Console& console);

// Runs `command` with the job at `place`, or gives up. Returns the exit code.
int with_job(const JobPlace& place, const Console& console, const std::function<int(const AskJob&)>& command);

}  // namespace gradmon
