// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "tools/gradmonctl/ask/job.h"

namespace gradmon {

// A live job for `gradmonctl watch` and `alerts --follow`; tests substitute a fake job.
struct LiveJob {
  AskJob ask;
  std::function<std::optional<Status>(std::chrono::milliseconds)> next_state;  // waits first; nullopt: none
  std::function<std::optional<bool>()> lives;  // nullopt: unknown
  std::function<bool()> interrupted;           // by the user; called only after the first answer
  std::function<WallTime()> now;
  std::function<void(std::chrono::milliseconds)> pause = {};  // ends early when the user interrupts
};

// The job at an endpoint, with the real network, clock and files. Each call of
// `next_state` asks the job. After the first call of `interrupted`, SIGINT no longer
// ends this process.
LiveJob live_job(const std::string& endpoint, AskJob ask);

}  // namespace gradmon
