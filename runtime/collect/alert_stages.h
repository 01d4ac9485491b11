// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "control/alerts/alert_report.h"
#include "control/config/config.h"
#include "gradmon/monitor.h"
#include "runtime/output/run_directory.h"
#include "writers/alert_stage.h"
#include "writers/queue/writer_thread.h"

namespace gradmon {

// The rank's place in its pipeline, for alerts. `pipeline`: ranks in the order of their stages; empty: this
// rank alone.
AlertOrigin alert_origin_of(Rank rank, const std::vector<int>& pipeline);

// A rank's report of the alerts of a step. Any thread.
AlertReport report_of(const StepAlerts& alerts);

// The reverse, for alerts that the lead hub has found in the values of the rank. Any thread.
StepAlerts step_alerts_of(const AlertReport& report, const AlertOrigin& origin);

// Makes the alert stages of each plan. Their histories, the recent alerts, the dump and the flight recorder
// are kept from plan to plan. Training thread, except recent() and raise().
class AlertStages {
 public:
  // `on_alerts`: see AlertStage::Settings.
  AlertStages(std::shared_ptr<RunDirectory> directory, AlertOrigin origin,
              std::shared_ptr<const NameTable> names, std::function<void(const StepAlerts&)> on_alerts);

  using OnRecords = std::function<void(Step, const std::vector<Record>&)>;  // see AlertStage::Settings

  // Null if the config has no alert rules.
  std::unique_ptr<AlertStage> make(const Config& config, OnRecords on_records = nullptr) const;
  // From now on raise() follows this config.
  void raise_under(const Config& config);
  // Any thread. Logs, dumps and reports these alerts on the writer thread. Drops them if the config in force
  // has no alert rules.
  void raise(const AlertReport& report, WriterThread& writer) const;
  // The recorder is for the writer thread only, except for its counts().
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
  mutable std::mutex mutex_;
  std::shared_ptr<AlertStage> raises_;  // guarded by mutex_; null: the config has no rules
};

}  // namespace gradmon
