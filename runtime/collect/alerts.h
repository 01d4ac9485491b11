// SPDX-License-Identifier: Apache-2.0
// The alerts of a rank: the stages that find them, and the rows that are compared with other ranks.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/alert_rule.h"
#include "control/alerts/alert_report.h"
#include "control/config/config.h"
#include "control/host/mailbox.h"
#include "control/link/report_outbox.h"
#include "gradmon/monitor.h"
#include "hooks/rows/target_match.h"
#include "hooks/rows/watched_model.h"
#include "runtime/collect/run_directory.h"
#include "writers/alert_stage.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record_batch.h"
#include "writers/queue/writer_thread.h"

namespace gradmon {

// The rank's place in its pipeline, for alerts. `pipeline`: ranks in the order of their stages; empty: this
// rank alone.
AlertOrigin find_alert_origin(Rank rank, const std::vector<int>& pipeline);

// Makes the alert stages of each plan. Their histories, the recent alerts, the dump and the flight recorder
// are kept from plan to plan. Training thread, except recent() and raise().
class AlertStages {
 public:
  // `on_alerts`: see AlertStage::Settings.
  AlertStages(std::shared_ptr<RunDirectory> directory, AlertOrigin origin,
              std::shared_ptr<const NameTable> names, std::function<void(const AlertReport&)> on_alerts);

  using OnRecords = std::function<void(Step, const RecordBatch&)>;  // see AlertStage::Settings

  // Null if the config has no alert rules.
  std::unique_ptr<AlertStage> make(const Config& config, OnRecords on_records = nullptr) const;
  // From now on raise() follows this config.
  void raise_under(const Config& config) { raises_.set(make(config)); }
  // Any thread. Logs, dumps and reports alerts that the lead hub has found in this rank's values, on the
  // writer thread. Drops them if the config in force has no alert rules.
  void raise(AlertReport report, WriterThread& writer) const;
  // The recorder is for the writer thread only, except for its counts().
  const std::shared_ptr<FlightRecorder>& flight() const { return flight_; }

  // The last alerts, oldest first. Any thread.
  std::vector<Alert> recent() const { return state_->recent.alerts(); }

 private:
  const AlertOrigin origin_;
  const std::shared_ptr<const NameTable> names_;
  const std::function<void(const AlertReport&)> on_alerts_;
  const std::shared_ptr<AlertState> state_;
  const std::shared_ptr<AnomalyDump> dump_;
  const std::shared_ptr<FlightRecorder> flight_;
  Published<std::shared_ptr<AlertStage>> raises_;  // null: the config has no rules
};

// The sentences of status() about rows that the recorder has lost, or has no room for.
std::vector<std::string> flight_warnings(const FlightRecorder::Counts& counts);

// The config's rule AnomalyRankDivergence; nullopt without it.
std::optional<AlertRule> find_divergence_rule(const Config& config);

// Selects from the records of a step the rows that other ranks should have, too: grad_reduced, param_origin
// and param_updated, except tensors that were read in part. Writer thread only.
class ReplicaRowReader {
 public:
  using OnStep = std::function<void(ReplicaStep)>;

  // At most `most_rows` of a kind are compared: the first ones, which are the same on all ranks.
  static constexpr std::size_t kMostRows = 65'536;

  ReplicaRowReader(ReplicaGroup group, double threshold, std::shared_ptr<const NameTable> names,
                   OnStep on_step)
      : group_(group), threshold_(threshold), names_(std::move(names)), on_step_(std::move(on_step)) {}

  // Sets, until the next call, the targets that are not compared because the ranks hold different values.
  void leave_out(std::set<std::uint32_t> targets) { left_out_ = std::move(targets); }

  void on_records(Step step, const RecordBatch& records);

 private:
  // The targets of a kind in the last step: the next step mostly has the same.
  struct Known {
    std::vector<std::uint32_t> ids;
    std::shared_ptr<const ReplicaTargets> targets;
  };

  std::shared_ptr<const ReplicaTargets> share_targets(Kind kind, std::vector<std::uint32_t> ids);

  const ReplicaGroup group_;
  const double threshold_;
  const std::shared_ptr<const NameTable> names_;
  const OnStep on_step_;
  std::set<std::uint32_t> left_out_;
  std::array<Known, kRecordKinds> known_;
};

// The targets of parameters that the ranks hold different values of.
std::set<std::uint32_t> not_replicated(const WatchedModel& model, Squash squash, NameTable& names);

}  // namespace gradmon
