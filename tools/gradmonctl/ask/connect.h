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

// Finds the job and its keys. The returned function sends the first command when called. `taken`: see
// find_endpoint().
tl::expected<AskJob, JobLookupError> connect(const JobSelector& selector, const Console& console,
                                             std::string* taken = nullptr);
// Returns a function that also prints both releases to `console.err`, once, if a command other than status
// and off is for a job of another release.
AskJob name_other_release(AskJob ask, const Console& console);
// Returns a function that answers every command with the error `problem`.
AskJob failing_ask(const JobLookupError& problem);

// Prints `problem` to `console.err`. Returns its exit code.
int report_no_job(const JobLookupError& problem, const Console& console);

// Prints the chosen job, if `taken` names it.
void report_taken(const std::string& taken, const Console& console);

// Runs `command` with the job at `selector`; calls report_no_job() without a job. Returns the exit code.
int with_job(const JobSelector& selector, const Console& console,
             const std::function<int(const AskJob&)>& command);

}  // namespace gradmon
