// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/agree/plan.h"
#include "control/alerts/alert_report.h"
#include "control/alerts/alert_trigger.h"
#include "control/host/limited_process.h"

namespace gradmon {

// Runs the program of `on_alert.exec` when alerts arrive: one at a time, at most every kLeastPause, each for
// at most kTimeLimit. writers/alerts/ALERTS.md describes the program's input. The lead hub's thread only.
class AlertCommand {
 public:
  static constexpr Ticks kLeastPause{10'000};
  static constexpr Ticks kTimeLimit{30'000};

  // Passed to the program.
  struct Job {
    std::string name;
    std::string launch_id;
    std::string output_dir;
    std::string config_path;
  };

  explicit AlertCommand(Job job) : job_(std::move(job)) {}

  // Alerts have arrived, and `left_out` others with them. Runs `exec`, or counts the alerts for its next run.
  // `now`: of a steady clock.
  void on_alerts(const std::vector<std::string>& exec, Ticks cooldown, const std::vector<RankAlert>& alerts,
                 std::uint64_t left_out, Ticks now);
  // Call it at least every second. Returns a line for the log if a program has failed.
  std::optional<std::string> poll();
  // The failure of the last program, or "".
  const std::string& failure() const { return failure_; }

 private:
  std::string input(const std::vector<RankAlert>& alerts, std::uint64_t left_out);
  std::vector<std::string> environment(const RankAlert& alert) const;

  const Job job_;
  AlertTrigger trigger_;
  std::optional<LimitedProcess> running_;
  std::string program_;       // path of the last program
  std::uint64_t missed_ = 0;  // alerts since the last run that no program received
  std::string failure_;
  bool failed_to_start_ = false;  // poll() must still report it
};

}  // namespace gradmon
