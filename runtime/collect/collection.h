// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "control/agree/overhead_budget.h"
#include "control/agree/step_gate.h"
#include "control/config/config.h"
#include "control/host/history_file.h"
#include "control/link/agent.h"
#include "gradmon/monitor.h"
#include "hooks/hook_set.h"
#include "hooks/observe/call_site.h"
#include "runtime/collect/alerts.h"
#include "runtime/collect/run_directory.h"
#include "runtime/collect/run_notes.h"
#include "runtime/collect/target_ledger.h"
#include "runtime/collect/training_scalars.h"
#include "writers/queue/writer_thread.h"
#include "writers/sinks/earlier_output.h"
#include "writers/sinks/memory_sink.h"

namespace gradmon {

// Carries out the plan in force: hooks that make records, the queue, and sinks that write them.
// Training thread, except for members that say otherwise.
class Collection {
 public:
  struct Settings {
    std::int64_t queue_capacity = 65'536;  // records; fixed when the Collection is made
    Rank rank;
    int world_size = 1;
    std::shared_ptr<RunDirectory> directory;
    int grad_acc_steps = 1;       // micro batches per step
    bool keep_last_step = false;  // for last_rows(), regardless of `format`
    // Returns the ranks that rank 0 knows of now, for run-{id}.json. Null in the other ranks.
    std::function<std::vector<RankStatus>()> ranks = {};
    StackSource stack = {};          // call stacks in the program's language; may be null
    std::vector<int> pipeline = {};  // of ParallelGroups
    std::function<void(const AlertReport&)> on_alerts = {};  // see AlertStage::Settings; may be null
    std::vector<int> replicas = {};  // ranks that should hold the same values; fewer than 2: unknown
    bool moments_differ = false;     // between `replicas`: ParallelGroups
    ReplicaRowReader::OnStep on_replicas = {};     // called on the writer thread, as on_alerts
    bool short_steps = false;                      // some steps have fewer micro batches than grad_acc_steps
    std::shared_ptr<ResumedSamples> samples = {};  // for a directory of an earlier job; may be null
    Step start = {};                               // the first step of the job
  };

  // The writer thread calls `on_finished` when a revision has collected its last step and all its rows
  // are on disk.
  Collection(Settings settings, WriterThread::OnFinished on_finished);
  ~Collection();
  Collection(const Collection&) = delete;
  Collection& operator=(const Collection&) = delete;

  // Adds a model chunk, or replaces all chunks. Attaches the hooks of the plan in force again.
  void add_model(const WatchedModel& chunk);
  void replace_model(const WatchedModel& chunks);

  enum class Collect : bool { no, yes };

  // At a boundary: puts a plan in force; begins a step; ends the collection of the plan, whose last step is
  // the one before `end`. `config`: the plan's; null if the plan is off, or if its config cannot be used:
  // then nothing is collected. `samples`: seen by all ranks so far.
  void swap(const Commitment& commitment, std::shared_ptr<const Config> config);
  void begin_step(Step step, Collect collect, std::int64_t samples) noexcept;
  void end_collection(Step end) noexcept;
  // Notes in switches.jsonl that the plan of the last swap() is in force since step `at`.
  void note_plan_change(Step at);
  // At the end of a collected step. `counts`: StepGate::step_still_valid(); if false, its rows are
  // dropped.
  void end_step(std::int64_t samples, bool counts) noexcept;

  // In place of end_step() for a step that is not collected. Does nothing unless needs_every_step().
  void end_step_between(std::int64_t samples) noexcept;

  // True if this step is collected.
  bool collecting() const { return collecting_; }
  // True if the flight recorder measures every step of this plan.
  bool recording() const { return recording_; }
  // Returns true if report_scalar() has a use for values although the current step is not collected.
  bool awaits_scalars() const { return awaiting_ != nullptr || (between_ && between_->awaits()); }
  bool needs_every_step() const { return recording() || awaits_scalars(); }
  // True if one collected step completes the plan's output (print_struct, cc_log_only).
  bool wants_one_step_only() const {
    return config_->print_struct || (config_->cc_distribution.enable && config_->cc_distribution.cc_log_only);
  }
  // True if before_update() has a use for the optimizer's moments, and if after_update() does anything.
  bool reads_moments() const { return hooks_ && hooks_->reads_moments(); }
  bool reads_after_update() const { return hooks_ && hooks_->reads_after_update(); }
  void gathered(const void* unit) noexcept;
  void before_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;
  void after_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;
  // Signs of training within the current step. Any thread.
  const TrainingPasses& passes() const { return *passes_; }
  // Same as HookSet::deliver_gradient().
  void deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept;

  // Passes a value of this step. `begun`: when the work for it began.
  void tap(const TappedValue& value, std::chrono::steady_clock::time_point begun) noexcept;

  // Sets the factor in the gradients of this step, > 0: of one chunk (vpp_stage); nullopt: of all chunks.
  void gradient_scale(double scale, std::optional<int> chunk) noexcept {
    chunk ? scales_->set(*chunk, scale) : scales_->set(scale);
  }
  // Scalars and expert loads that the program reports in a step that is collected or recorded. A scalar
  // belongs to the step that has just ended, unless that step has a value of this name from the program or
  // training has begun the next: a forward with gradients (it makes autograd nodes), a backward, an update or
  // a tap.
  void report_scalar(std::string_view name, double value) noexcept;
  void report_experts(std::string_view layer, const std::vector<std::int64_t>& tokens) noexcept;

  // Detaches all hooks and writes the remaining rows. Waits until 2 s after the writer's last progress, 30 s
  // at most; with `at_most`, that long whether or not the writer makes progress. Abandoned rows are logged
  // and count as dropped.
  void stop(std::optional<std::chrono::milliseconds> at_most = {}) noexcept;

  // Any thread.
  std::int64_t queue_capacity() const { return settings_.queue_capacity; }
  CollectingReport report() const;
  TargetList targets() const { return ledger_.list(); }

  // Rows of the last collected step, for Monitor::metrics().
  std::vector<Metric> last_rows() const;
  // Any thread. For Monitor::alerts().
  std::vector<Alert> recent_alerts() const { return alerts_.recent(); }
  // Any thread. Raises alerts that the lead hub has found in this rank's values.
  void raise(const AlertReport& report) { alerts_.raise(report, writer_); }

 private:
  class Stream;
  class OwnTime;

  bool leaves_replicas() const;
  HookSettings hook_settings() const;
  void attach();
  void attach_again();
  void log_once(const std::string& warning);
  void warn(const std::string& sentence);  // in the log and in status(), once under the plan in force
  void update_unmatched();
  void warn_of_missing_update() noexcept;
  void warn_of_unseen_modules();
  void end_scalars(std::int64_t samples) noexcept;
  bool report_late(std::string_view name, double value) noexcept;
  bool forward_seen() const noexcept;
  void settle_scalars() noexcept;
  void after_scalars(std::function<void()> post);
  AlertStages::OnRecords begin_replicas();
  void begin_flight();
  void forget_flight();
  // The scalars of this step; null: the config names none, or the step needs none.
  TrainingScalars* scalars() const noexcept;
  void end_batch() noexcept;
  void settle_between() noexcept;
  Readers readers() const noexcept;
  void compare_replicas(const HookSettings& settings);
  std::chrono::nanoseconds hooks_time() const noexcept {
    return hooks_ ? hooks_->hook_time() : std::chrono::nanoseconds{};
  }
  void detach();
  void measure_overhead(Step step);
  void note_failure(const std::optional<HookFailure>& failure);
  void write_note();
  std::vector<std::unique_ptr<Sink>> make_sinks() const;
  // Null: the output is new.
  std::shared_ptr<ResumedSamples> resumed_samples() const {
    return settings_.directory->appends() ? settings_.samples : nullptr;
  }

  // Constant after construction.
  const Settings settings_;

  const std::shared_ptr<NameTable> names_;    // own synchronisation
  const std::shared_ptr<RecordQueue> queue_;  // own synchronisation
  TargetLedger ledger_;                       // own synchronisation
  const std::shared_ptr<LastStep> last_;      // own synchronisation
  AlertStages alerts_;                        // own synchronisation where it says "any thread"
  const std::shared_ptr<GradientScales> scales_ = std::make_shared<GradientScales>();
  const std::shared_ptr<TrainingPasses> passes_ = std::make_shared<TrainingPasses>();

  ScopeNotes scopes_;
  WatchedModel model_;
  Commitment in_force_;
  std::optional<SwitchNote> unwritten_note_;
  std::shared_ptr<const Config> config_ = std::make_shared<const Config>();  // of the last plan that was on
  std::set<std::string> logged_warnings_;                                    // under the plan in force
  Step step_;
  Step last_ended_{-1};          // the last collected step; -1: none, or it had no rows
  std::uint64_t last_rows_ = 0;  // number of its rows
  bool keeps_last_step_ = false;
  bool collecting_ = false;
  bool recording_ = false;          // the flight recorder is on
  bool behind_logged_ = false;      // a step was not compared with other ranks
  bool updated_ = false;            // update() was called in this step
  bool looked_for_unseen_ = false;  // warn_of_unseen_modules() was called under this plan
  bool begun_ = true;               // training has begun this step: a sign other than forward_seen()
  bool begins_seen_ = true;         // forward_seen() in the step before, or unknown
  std::uint64_t nodes_ = 0;         // autograd nodes that this thread had made before this step
  enum class Measured : std::uint8_t { no, between, collected };
  Measured ended_ = Measured::no;     // the step that is to end at this boundary
  Measured previous_ = Measured::no;  // the step before this one
  int scalar_steps_ = 0;              // steps with scalars that have ended under this plan
  std::size_t unmatched_ = 0;         // unmatched names and patterns at the last update_unmatched()
  OverheadMeter meter_;
  std::chrono::nanoseconds own_time_{};    // since the last collected step began, without the hooks' time
  std::chrono::nanoseconds hooks_time_{};  // hooks_time() when the last collected step began

  mutable std::mutex mutex_;
  // Guarded by mutex_; for report().
  std::string hook_error_;
  std::vector<std::string> warnings_;
  std::vector<std::string> unmatched_warnings_;  // written by the training thread only; it reads without
  Overhead overhead_;
  std::vector<std::string> scalar_warnings_;
  bool missing_update_warned_ = false;

  WriterThread writer_;
  const std::unique_ptr<RunNotes> notes_;  // uses writer_; null except in rank 0
  const std::unique_ptr<Stream> stream_;   // uses writer_
  // Keep last: detach before the rest dies.
  std::vector<std::function<void()>> posts_;    // for the writer, after the rows of awaiting_
  std::shared_ptr<TrainingScalars> awaiting_;   // its rows wait; null: no rows wait
  std::shared_ptr<TrainingScalars> scalars_;    // null: the config names none
  std::unique_ptr<TrainingScalars> between_;    // of steps that are not collected; null: recording_ is false
  std::shared_ptr<ReplicaRowReader> replicas_;  // null: no AnomalyRankDivergence
  std::unique_ptr<HookSet> hooks_;
};

}  // namespace gradmon
