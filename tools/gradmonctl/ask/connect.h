// SPDX-License-Identifier: Apache-2.0
// Connects to the job that a JobSelector designates, over the real network.
#pragma once

#include <functional>
#include <string>
#include <tl/expected.hpp>

#include "tools/gradmonctl/ask/find_job.h"
#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_selector.h"

namespace gradmon {

CommandClock system_clock();

// Finds the job and its keys. The returned function sends the first command when called. `taken`: as in
// find_endpoint().
tl::expected<AskJob, JobLookupError> connect(const JobSelector& selector, const Console& console,
                                             std::string* taken = nullptr);
// A function that also prints both releases to `console.err`, once, if a command other than status and off
// is for a job of another release.
AskJob name_other_release(AskJob ask, const Console& console);
// A function that answers every command with the error `problem`.
AskJob failing_ask(const JobLookupError& problem);

// Prints `problem` to `console.err`. Returns its exit code.
int report_no_job(const JobLookupError& problem, const Console& console);

// Prints which job was taken, if `taken` says it.
void report_taken(const std::string& taken, const Console& console);

// Runs `command` with the job at `selector`; calls report_no_job() if there is none. Returns the
// exit code.
int with_job(const JobSelector& selector, const Console& console,
             const std::function<int(const AskJob&)>& command);

}  // namespace gradmon
