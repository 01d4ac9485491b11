// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/agree/overhead_meter.h"
#include "control/agree/step_gate.h"
#include "control/config/config.h"
#include "control/host/history_file.h"
#include "control/link/agent_options.h"
#include "gradmon/monitor.h"
#include "hooks/hook_set.h"
#include "hooks/observe/call_site.h"
#include "runtime/collect/target_ledger.h"
#include "runtime/output/run_notes.h"
#include "runtime/scalars/training_scalars.h"
#include "writers/queue/writer_thread.h"
#include "writers/sinks/last_step.h"

namespace gradmon {

// What a plan is turned into: hooks on one side, sinks on the other, the queue
// between them. Training thread, but for report().
class Collection {
 public:
  struct Settings {
    std::int64_t queue_capacity = 65'536;  // of the config at the start
    Rank rank;
    int world_size = 1;
    std::shared_ptr<RunDirectory> directory;
    int grad_acc_steps = 1;       // micro batches of a step
    bool keep_last_step = false;  // whatever the format
    RunNotes::Ranks ranks = {};   // in rank 0, which notes the run; null elsewhere
    StackSource stack = {};       // of the program's language; null: none
  };

  // `on_finished` is called by the writer thread when all rows of a revision
  // that ran to its end are on disk.
  Collection(Settings settings, WriterThread::OnFinished on_finished);
  ~Collection();
  Collection(const Collection&) = delete;
  Collection& operator=(const Collection&) = delete;

  // Another model chunk, or all of them as they are now; hooks of the plan in force
  // are made anew.
  void add_model(const WatchedModel& chunk);
  void replace_model(const WatchedModel& chunks);

  // At a boundary: puts a plan in force, arms for the step, says that the plan
  // has collected all it was to collect. `samples`: seen by all ranks so far.
  void swap(const Commitment& commitment);
  void begin_step(Step step, HookSet::Collect collect, std::int64_t samples) noexcept;
  void end_collection(Step end) noexcept;
  // Writes into switches.jsonl that the plan of swap() is in force since step `at`.
  void note_switch(Step at);
  // At the end of a step for which begin_step said yes.
  // `counts`: StepGate::still_counts().
  void end_step(std::int64_t samples, bool counts) noexcept;

  bool collecting() const { return collecting_; }
  // Whether the plan in force is content with one step (print_struct, cc_log_only).
  bool wants_one_step_only() const {
    return config_.print_struct || (config_.cc_distribution.enable && config_.cc_distribution.cc_log_only);
  }
  void before_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;
  void after_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;

  // What the gradients of the step are multiplied by; > 0.
  void gradient_scale(double scale) noexcept { scale_->store(scale, std::memory_order_relaxed); }
  // What the program reports of the step, while collecting.
  void report_scalar(std::string_view name, double value) noexcept;
  void report_experts(std::string_view layer, const std::vector<std::int64_t>& tokens) noexcept;

  // Detaches all hooks and writes what is left: until 2 s have passed without
  // progress, 30 s at most; or for `at_most`, where that is given, with or without
  // progress. What is given up then is logged, and counts as dropped.
  void stop(std::optional<std::chrono::milliseconds> at_most = {}) noexcept;

  // Any thread.
  CollectingReport report() const;
  TargetList targets() const { return ledger_.list(); }

  // The step that ended last, once the writer has come to it, as Monitor::metrics() says.
  std::vector<Metric> last_rows() const;

 private:
  class Stream;
  class OwnTime;

  void attach();
  void attach_again();
  void tell_unmatched();
  void warn_of_missing_update() noexcept;
  void end_scalars(std::int64_t samples) noexcept;
  void detach();
  void measure_round(Step step);
  void write_note();
  std::vector<std::unique_ptr<Sink>> make_sinks() const;

  // Constant after construction.
  const Settings settings_;

  const std::shared_ptr<NameTable> names_;    // own synchronisation
  const std::shared_ptr<RecordQueue> queue_;  // own synchronisation
  TargetLedger ledger_;                       // own synchronisation
  const std::shared_ptr<LastStep> last_;      // own synchronisation
  const std::shared_ptr<GradientScale> scale_ = std::make_shared<GradientScale>(1.0);

  WatchedModel model_;
  Commitment in_force_;
  std::optional<SwitchNote> unwritten_note_;
  Config config_;
  Step step_;
  Step last_ended_{-1};  // of those that were collected; -1: it had no rows
  bool keeps_last_step_ = false;
  bool collecting_ = false;
  bool updated_ = false;       // update() was called in this step
  int scalar_steps_ = 0;       // that have ended under this plan
  std::size_t unmatched_ = 0;  // names and patterns, when it was told last
  OverheadMeter meter_;
  std::chrono::nanoseconds own_time_{};    // in a round, without that of the hooks
  std::chrono::nanoseconds hooks_time_{};  // of these hooks, before it

  mutable std::mutex mutex_;
  // Guarded by mutex_: what report() tells of the hooks.
  std::string hook_error_;
  std::vector<std::string> warnings_;
  std::vector<std::string> unmatched_warnings_;  // the training thread, which alone changes it, reads without
  Overhead overhead_;
  std::vector<std::string> scalar_warnings_;
  bool missing_update_logged_ = false;

  WriterThread writer_;
  const std::unique_ptr<RunNotes> notes_;  // tells the writer; null in other ranks than 0
  const std::unique_ptr<Stream> stream_;   // tells the writer
  // Keep last: detach before the rest dies.
  std::unique_ptr<TrainingScalars> scalars_;  // null: none asked for
  std::unique_ptr<HookSet> hooks_;
};

}  // namespace gradmon
