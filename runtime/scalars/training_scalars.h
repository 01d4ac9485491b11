// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hooks/hook_set.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/row_writer.h"
#include "runtime/scalars/scalar_board.h"
#include "writers/queue/name_table.h"
#include "writers/queue/writer_thread.h"
#include "writers/sinks/resumed_samples.h"

namespace gradmon {

// Writes the training scalars of one plan to the log, to records or to both, as configured. Training thread,
// in its steps. Only the constructor throws; the first failure trips a fuse, and nothing more is collected.
class TrainingScalars {
 public:
  // `between`: steps that only the flight recorder needs. They have no log line, and no norm of a tensor
  // other than the gradients as the optimizer uses them.
  enum class Steps : std::uint8_t { collected, between };
  struct Context {
    Rank rank;
    int world_size = 1;
    std::shared_ptr<NameTable> names;
    RecordStream& stream;                               // `stream` and `writer` must outlive this object
    WriterThread& writer;                               // writes the log lines
    std::shared_ptr<ResumedSamples> samples = nullptr;  // null: the output is new
    Steps steps = Steps::collected;
  };

  TrainingScalars(const Config& config, Revision revision, Context context);
  ~TrainingScalars();

  // Attaches the hooks that norms need; call it again if the model has changed. `plan`: settings of the
  // plan's own hooks.
  void attach(const HookSettings& plan, const WatchedModel& model);

  // `samples`: seen by all ranks so far; 0 if the program does not report it.
  void begin_step(Step step, HookSet::Collect collect, std::int64_t samples) noexcept;
  // Call it after attach() within a collected step: begins the step for the new hooks.
  void begin_hooks(Step step) noexcept;
  void gathered(const void* unit) noexcept;  // see HookSet
  void before_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;
  void after_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;
  void deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept;
  void report(std::string_view name, double value) noexcept;
  void count_experts(std::string_view layer, const std::vector<std::int64_t>& tokens) noexcept;
  // True if on_record() needs the records' values.
  bool takes_norms() const noexcept;
  // Takes norms from a record of the plan's own hooks.
  void on_record(const Record& record) noexcept;
  // Call it for each tensor that the plan's hooks could not read.
  void on_missing_row(Kind kind) noexcept;
  // Call it after the plan's own hooks have ended the step. Writes its rows unless awaits().
  void end_step(std::int64_t samples) noexcept;
  // Returns true if the rows of the last ended step wait for values that may be reported late.
  bool awaits() const noexcept { return ended_ && board_.awaits(); }
  // Same as in ScalarBoard. Call settle() once no value is awaited.
  bool report_late(std::string_view name, double value) noexcept;
  // Writes the waiting rows, before the next end_step(). drop() discards them.
  void settle() noexcept;
  void drop() noexcept;
  // Detaches the hooks that norms need.
  void detach() noexcept;

  std::optional<HookFailure> failure() const;
  // A warning for each configured scalar without a value so far; empty before the end of the first step.
  std::vector<std::string> warnings() const;

 private:
  class NormHooks;
  struct Ended {
    Step step;
    std::int64_t samples = 0;
  };
  void write_rows(const Ended& ended);
  void write_log(const Ended& ended);

  const Context context_;
  HookFuse fuse_;
  ScalarBoard board_;
  RowWriter rows_;
  Step step_;
  std::optional<Ended> ended_;  // the step whose rows wait
  bool ended_one_ = false;
  // Keep last: its hooks write to board_.
  std::unique_ptr<NormHooks> norms_;
};

}  // namespace gradmon
