// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/alert_log.h"

#include <utility>

namespace gradmon {

std::vector<std::string> AlertLog::lines(const StepAlerts& alerts, Time now) {
  std::vector<std::string> lines;
  if (!period_began_ || now - *period_began_ >= kPeriod) {
    period_began_ = now;
    lines_in_period_ = 0;
    count_line(lines);
  }
  std::uint64_t not_logged = alerts.left_out;
  for (const AlertEvent& event : alerts.events) {
    if (lines_in_period_ == kMostLines) {
      ++not_logged;
      continue;
    }
    ++lines_in_period_;
    lines.push_back(event.message);
  }
  if (not_logged_ == 0) not_logged_since_ = alerts.step.value;
  not_logged_ += not_logged;
  return lines;
}

// Adds the line that says how many alerts were not logged, if there were any.
void AlertLog::count_line(std::vector<std::string>& lines) {
  if (not_logged_ == 0) return;
  lines.push_back(std::to_string(std::exchange(not_logged_, 0)) + " more alerts since step " +
                  std::to_string(not_logged_since_) + " are not in the log");
}

}  // namespace gradmon
