// SPDX-License-Identifier: Apache-2.0
// Connects to the job that a JobPlace designates, over the real network.
#pragma once

#include <functional>
#include <string>
#include <tl/expected.hpp>

#include "tools/gradmonctl/ask/find_job.h"
#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_place.h"

namespace gradmon {

Pace real_pace();

// Finds the job and its keys. The returned function sends the first command when called.
tl::expected<AskJob, NoJob> connect(const JobPlace& place);
// The same for an endpoint on this host, which needs no keys.
AskJob connect_here(const std::string& endpoint);
// A function that answers every command with the error `problem`.
AskJob ask_nobody(const NoJob& problem);

// Prints `problem` to `console.err`. Returns its exit code.
int give_up(const NoJob& problem, const Console& console);

// Runs `command` with the job at `place`; calls give_up() if there is none. Returns the
// exit code.
int with_job(const JobPlace& place, const Console& console, const std::function<int(const AskJob&)>& command);

}  // namespace gradmon
