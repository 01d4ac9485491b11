// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "control/alert_rule.h"
#include "writers/alerts/alert_event.h"

namespace gradmon {

// Chooses the log lines for a rank's alerts: one line for each step and rule (a scalar that is reported after
// the step's end comes in a call of its own, and has no second line), and for each rule at most
// kBurst lines at once and then one in each kPause. The five rules together log less than 200 lines in an
// hour. Counts alerts without a line in the rule's next line. Pure; one thread.
class AlertLog {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int kBurst = 12;
  static constexpr std::chrono::seconds kPause{150};

  // The lines to log now, in the order of the events.
  std::vector<std::string> lines(const StepAlerts& alerts, Time now);

 private:
  struct OfRule {
    int lines_left = kBurst;
    Time counted_to{};              // lines_left includes lines that became free until then
    std::uint64_t not_logged = 0;   // alerts
    std::int64_t since = 0;         // step of the first one
    std::int64_t logged_step = -1;  // of the last line
  };

  OfRule& of(const std::string& rule);

  std::array<OfRule, kAnomalyNames.size()> rules_;
};

}  // namespace gradmon
