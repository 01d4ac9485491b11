// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_selector.h"

namespace gradmon {

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
