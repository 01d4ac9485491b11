// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "writers/alerts/alert_event.h"

namespace gradmon {

// Chooses the alerts that are logged: at most kMostLines in each kPeriod. The others are counted. Pure; one
// thread.
class AlertLog {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int kMostLines = 16;
  static constexpr std::chrono::seconds kPeriod{10};

  // The lines to log now. The first line of a period says how many alerts were not logged before, if any.
  std::vector<std::string> lines(const StepAlerts& alerts, Time now);

 private:
  void count_line(std::vector<std::string>& lines);

  std::optional<Time> period_began_;
  int lines_in_period_ = 0;
  std::uint64_t not_logged_ = 0;
  std::int64_t not_logged_since_ = 0;  // step
};

}  // namespace gradmon
