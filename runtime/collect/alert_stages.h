// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "control/alerts/alert_report.h"
#include "control/config/config.h"
#include "gradmon/monitor.h"
#include "runtime/output/run_directory.h"
#include "writers/alert_stage.h"

namespace gradmon {

// The rank's place in its pipeline, for alerts. `pipeline`: ranks in the order of their stages; empty: this
// rank alone.
AlertOrigin alert_origin_of(Rank rank, const std::vector<int>& pipeline);

// What a rank reports of the alerts of a step. Any thread.
AlertReport report_of(const StepAlerts& alerts);

// Makes the alert stages of each plan. Their histories, the recent alerts, the dump and the flight recorder
// are kept from plan to plan. Training thread, except recent().
class AlertStages {
 public:
  // `on_alerts`: see AlertStage::Settings.
  AlertStages(std::shared_ptr<RunDirectory> directory, AlertOrigin origin,
              std::shared_ptr<const NameTable> names, std::function<void(const StepAlerts&)> on_alerts);

  // Null if the config has no alert rules.
  std::unique_ptr<AlertStage> make(const Config& config) const;
  // Writer thread, except counts().
  const std::shared_ptr<FlightRecorder>& flight() const { return flight_; }

  // The last alerts, oldest first. Any thread.
  std::vector<Alert> recent() const;

 private:
  const AlertOrigin origin_;
  const std::shared_ptr<const NameTable> names_;
  const std::function<void(const StepAlerts&)> on_alerts_;
  const std::shared_ptr<AlertState> state_;
  const std::shared_ptr<AnomalyDump> dump_;
  const std::shared_ptr<FlightRecorder> flight_;
};

}  // namespace gradmon
