// SPDX-License-Identifier: Apache-2.0
// The alert rules of one revision. Looks at each step: the dump gets all findings; the log, the recent alerts
// and the program get the findings that begin in the step (Findings). Keeps the step for the flight recorder,
// which writes after an alert begins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "control/alert_rule.h"
#include "writers/alerts/alert_description.h"
#include "writers/alerts/alert_evaluator.h"
#include "writers/alerts/anomaly_dump.h"
#include "writers/alerts/flight_recorder.h"
#include "writers/queue/name_table.h"
#include "writers/queue/sink.h"

namespace gradmon {

// The state that outlives a revision. For the writer thread alone, except `recent`, which has its own lock.
struct AlertState {
  AlertEvaluator evaluator;
  AlertLog log;
  RecentAlerts recent;
};

class AlertStage : public StepObserver {
 public:
  struct Settings {
    std::vector<AlertRule> rules;
    std::shared_ptr<AnomalyDump> dump;  // null: none
    AlertOrigin origin;
    std::shared_ptr<const NameTable> names;
    std::shared_ptr<FlightRecorder> flight = nullptr;  // null: none
    std::int64_t keep_last = 0;                        // steps that it keeps
    // Called on the writer thread after each step in which alerts begin. It must return at once, and own the
    // data it uses: an abandoned writer thread may still call it. May be null.
    std::function<void(const AlertReport&)> on_alerts = nullptr;
    // Called on the writer thread with the records of each step except those for the flight recorder, before
    // the rules look at them. May be null.
    std::function<void(Step, const RecordBatch&)> on_records = nullptr;
  };

  AlertStage(Settings settings, std::shared_ptr<AlertState> state);

  void begin_revision(const Layout& layout) override;
  [[nodiscard]] std::optional<FileToWrite> on_step(Step step, const RecordBatch& records, Time now) override;
  [[nodiscard]] std::optional<FileToWrite> on_flight(Step step, const RecordBatch& records,
                                                     Time now) override;
  void on_replicas(Step step, const RecordBatch& records) override {
    if (settings_.on_records) settings_.on_records(step, records);
  }
  // Passes on alerts as on_step() does, for at least one alert of a step that another process has found in
  // this rank's values. Returns the file to write, or nullopt.
  [[nodiscard]] std::optional<FileToWrite> report(const AlertReport& report, Time now);

 private:
  const Findings& evaluate(const RecordBatch& records);
  void tell(const AlertReport& report, Time now);

  const Settings settings_;
  const std::shared_ptr<AlertState> state_;
  Layout layout_;
};

}  // namespace gradmon
