// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "control/config/config.h"
#include "hooks/hook_set.h"
#include "runtime/collect/step_rows.h"
#include "runtime/scalars/training_scalars.h"
#include "writers/alert_stage.h"
#include "writers/queue/name_table.h"
#include "writers/queue/writer_thread.h"

namespace gradmon {

// Measures for the flight recorder the rows that the plan's own hooks do not (writers/flight/FLIGHT.md):
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
  void before_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;
  void deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept;
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

  std::chrono::nanoseconds hook_time() const noexcept;
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
  std::unique_ptr<HookSet> hooks_;            // null until attach()
};

// The sentences of status() about rows that the recorder has lost, or has no room for.
std::vector<std::string> warnings_of(const FlightRecorder::Counts& counts);

}  // namespace gradmon
