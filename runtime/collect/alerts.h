// SPDX-License-Identifier: Apache-2.0
// The alerts of a rank: the stages that find them (AlertStages), and rows that are measured for the alert
// rules alone (FlightSteps, ReplicaSteps) and that no sink gets (StepRows).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/alert_rule.h"
#include "control/alerts/alert_report.h"
#include "control/config/config.h"
#include "control/link/report_outbox.h"
#include "gradmon/monitor.h"
#include "hooks/hook_set.h"
#include "hooks/rows/record_stream.h"
#include "runtime/collect/run_directory.h"
#include "runtime/collect/training_scalars.h"
#include "writers/alert_stage.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record.h"
#include "writers/queue/writer_thread.h"

namespace gradmon {

// The rank's place in its pipeline, for alerts. `pipeline`: ranks in the order of their stages; empty: this
// rank alone.
AlertOrigin find_alert_origin(Rank rank, const std::vector<int>& pipeline);

// A rank's report of the alerts of a step. Any thread.
AlertReport to_report(const StepAlerts& alerts);

// The reverse, for alerts that the lead hub has found in the values of the rank. Any thread.
StepAlerts to_step_alerts(const AlertReport& report, const AlertOrigin& origin);

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

// Collects the rows of a step, beside the record queue, for a function that the writer thread calls
// (WriterThread::write_file()). Has no histograms and no documents. Training thread.
class StepRows : public RecordStream {
 public:
  // Rows of all steps that may wait for the writer thread. A step that would exceed the limit is refused,
  // unless no other step waits.
  static constexpr std::int64_t kMostWaiting = std::int64_t{1} << 18U;

  explicit StepRows(std::shared_ptr<NameTable> names) : names_(std::move(names)) {}

  std::uint32_t target_id(int vpp_stage, std::string_view name) override;
  std::uint32_t shape_id(std::string_view shape) override;
  bool push(const Record& record) noexcept override;
  bool push(const Histogram&) noexcept override { return true; }
  bool take_late(const std::shared_ptr<LateValues>& late) noexcept override;
  void note_missing_row(Kind kind) noexcept override;
  void publish(Document, std::string) noexcept override {}

  // `observer` sees every record of the step. Null: none. It must live until the next call.
  void set_observer(TrainingScalars* observer) noexcept { observer_ = observer; }
  void clear() noexcept {
    rows_.clear();
    late_.reset();
  }
  std::size_t size() const noexcept { return rows_.size(); }

  struct Taken {
    std::vector<Record> rows;
    std::shared_ptr<LateValues> late;  // null: all rows are complete

    // Waits for late values, once. Writer thread.
    std::vector<Record>& completed();
  };
  // Takes the rows away. They count as waiting until the last copy of the result ends. Null: they are refused
  // and stay. Throws only std::bad_alloc.
  std::shared_ptr<Taken> take();

 private:
  const std::shared_ptr<NameTable> names_;  // own synchronisation
  const std::shared_ptr<std::atomic<std::int64_t>> waiting_ = std::make_shared<std::atomic<std::int64_t>>(0);
  std::vector<Record> rows_;
  std::shared_ptr<LateValues> late_;
  TrainingScalars* observer_ = nullptr;
};

// Measures for the flight recorder the rows that the plan's own hooks do not (writers/alerts/FLIGHT.md):
// grad_reduced in every step in which they do not read it, and the training scalars between collected steps.
// The rows go to the alert rules on the writer thread, not to the sinks. Training thread; only the
// constructor and attach() throw.
class FlightSteps {
 public:
  struct Context {
    Rank rank;
    int world_size = 1;
    std::shared_ptr<NameTable> names;
    WriterThread& writer;  // must outlive this object
    std::shared_ptr<FlightRecorder> recorder;
    std::shared_ptr<AlertStage> stage;  // of the revision, for these rows; only the writer thread calls it
    std::shared_ptr<ResumedSamples> samples = nullptr;  // null: the output is new
  };

  // Call it after WriterThread::begin_revision() of the plan.
  FlightSteps(const Config& config, const Layout& layout, Context context);
  ~FlightSteps();

  // Attaches the hooks; again if the model has changed. `plan`: settings of the plan's own hooks.
  void attach(const HookSettings& plan, const WatchedModel& model);
  // Call it after attach() within a step: begins the step for the new hooks.
  void begin_hooks() noexcept;

  // `collect`: yes if the plan's own hooks measure the step. `samples`: seen by all ranks so far.
  void begin_step(Step step, HookSet::Collect collect, std::int64_t samples) noexcept;
  // Calls `use` with each hook set that reads this step.
  template <class Use>
  void for_hook_sets(const Use& use) const {
    if (hooks_) use(*hooks_);
    if (!scalars_ || !between_) return;
    for (const auto& hooks : scalars_->hook_sets()) use(*hooks);
  }
  void report(std::string_view name, double value) noexcept;
  // Same as in TrainingScalars, for a step that only the recorder measures.
  bool report_late(std::string_view name, double value) noexcept;
  bool awaits_scalars() const noexcept { return scalars_ && scalars_->awaits(); }
  void settle() noexcept;
  void count_experts(std::string_view layer, const std::vector<std::int64_t>& tokens) noexcept;
  // Passes the step's rows to the writer thread. Rows that StepRows refuses count as lost.
  void end_step(std::int64_t samples) noexcept;
  // Instead of end_step() for a step that does not count.
  void drop_step() noexcept;

  const HookSet* hooks() const noexcept { return hooks_.get(); }  // null until attach()
  std::optional<HookFailure> failure() const;

 private:
  struct Waiting;

  HookSet::Collect reads_gradients() const noexcept;
  void send(StepRows& rows) noexcept;

  const Context context_;
  StepRows rows_;
  StepRows scalar_rows_;
  bool plan_reads_gradients_ = false;
  bool between_ = false;  // this step is not collected
  Step step_;
  // Keep last: detach before the rest dies.
  std::unique_ptr<TrainingScalars> scalars_;  // null: the config names none
  std::unique_ptr<HookSet> hooks_;
};

// The sentences of status() about rows that the recorder has lost, or has no room for.
std::vector<std::string> flight_warnings(const FlightRecorder::Counts& counts);

// The config's rule AnomalyRankDivergence; nullopt without it.
std::optional<AlertRule> find_divergence_rule(const Config& config);

// Selects from the records of a step the rows that other ranks should have, too: grad_reduced, param_origin
// and param_updated. Writer thread only.
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

  void on_records(Step step, const std::vector<Record>& records);

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

// Reads, for AnomalyRankDivergence, the parameters whose rows another rank of the data-parallel group writes,
// in each collected step. The rows go to a ReplicaRowReader on the writer thread, not to the sinks. Training
// thread; only the constructor and attach() throw.
class ReplicaSteps {
 public:
  struct Context {
    std::shared_ptr<NameTable> names;
    WriterThread& writer;  // must outlive this object
    std::shared_ptr<ReplicaRowReader> reader;
  };

  explicit ReplicaSteps(Context context);
  ~ReplicaSteps();

  // Attaches the hooks; again if the model has changed. `plan`: settings of the plan's own hooks.
  void attach(const HookSettings& plan, const WatchedModel& model);

  void begin_step(Step step, HookSet::Collect collect) noexcept;
  // Passes the step's rows to the writer thread. A step whose rows StepRows refuses is not compared, and the
  // log says so once.
  void end_step() noexcept;
  // Instead of end_step() for a step that does not count.
  void drop_step() noexcept;

  HookSet* hooks() const noexcept { return hooks_.get(); }  // null: this rank writes all rows

 private:
  const Context context_;
  StepRows rows_;
  Step step_;
  bool refusal_logged_ = false;
  // Keep last: detach before the rest dies.
  std::unique_ptr<HookSet> hooks_;
};

}  // namespace gradmon
