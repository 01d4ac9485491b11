// SPDX-License-Identifier: Apache-2.0
// Connects to the job that a JobSelector designates, over the real network.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "tools/gradmonctl/cli/find_job.h"
#include "tools/gradmonctl/cli/job.h"

namespace gradmon {

// Wraps `ask`. Does not send a command too large for one message: the reply is CommandOutcome::failed, and
// its message names both sizes.
AskJob bounded_ask(AskJob ask);

// Wraps `ask`. While a hub answers with CommandOutcome::no_lead, as a restarted hub does until its ranks are
// back, sends the same command again, until the time is over. The error is then the hub's message.
AskJob patient_ask(AskJob ask, CommandClock clock);

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

// A live job for `gradmonctl watch` and `alerts --follow`; tests substitute a fake job.
struct LiveJob {
  AskJob ask;
  std::function<std::optional<Status>(std::chrono::milliseconds)> next_state;  // waits first; nullopt: none
  std::function<std::optional<bool>()> lives;                                  // nullopt: unknown
  std::function<bool()> interrupted;  // by the user; called only after the first answer
  std::function<WallTime()> now;
  std::function<void(std::chrono::milliseconds)> pause = {};  // ends early when the user interrupts
};

// The job has ended when its hub is missing in this number of checks in a row: a killed hub is restarted
// within a second.
inline constexpr int kLooksBeforeEnd = 2;

// Runs `command` with the job at `selector`, over the real network, clock and files; calls report_no_job()
// without a job. Returns the exit code. Each call of `next_state` asks the job. After the first call of
// `interrupted`, SIGINT no longer ends this process.
int with_live_job(JobSelector selector, const Console& console,
                  const std::function<int(const LiveJob&)>& command);

}  // namespace gradmon
