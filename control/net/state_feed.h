// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "control/agree/journal.h"
#include "control/net/curve_keys.h"

namespace gradmon {

class Bus;

// The hearing end of a job's state broadcasts: at least one a second while the
// job lives and is reached. One thread.
class StateFeed {
 public:
  // Connects, without waiting. `keys` are used where the endpoint is TCP. Throws
  // std::runtime_error as CommandClient does.
  explicit StateFeed(const std::string& state_endpoint, std::optional<ClientKeys> keys = {});
  ~StateFeed();
  StateFeed(const StateFeed&) = delete;
  StateFeed& operator=(const StateFeed&) = delete;

  // The next state; none where there is none in time, or a signal came.
  std::optional<Status> next(std::chrono::milliseconds timeout);

 private:
  std::unique_ptr<Bus> bus_;  // Constant after construction.
};

}  // namespace gradmon
