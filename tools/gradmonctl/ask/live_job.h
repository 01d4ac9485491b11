// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "tools/gradmonctl/ask/job.h"

namespace gradmon {

// A live job, as `watch` follows it; tests put a fake one here.
struct LiveJob {
  AskJob ask;
  std::function<std::optional<Status>(std::chrono::milliseconds)> next_state;  // after so long
  std::function<std::optional<bool>()> lives;  // none: nothing tells, but its answers
  std::function<bool()> interrupted;           // by the user; asked after the first answer only
  std::function<WallTime()> now;
};

// The job behind an endpoint, with the real network, clock and files; it is asked
// each time. From the first call of `interrupted` on, SIGINT no longer ends this
// process.
LiveJob live_job(const std::string& endpoint, AskJob ask);

}  // namespace gradmon
