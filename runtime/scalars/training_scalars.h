// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/row_writer.h"
#include "runtime/scalars/norm_hooks.h"
#include "runtime/scalars/scalar_board.h"
#include "writers/queue/writer_thread.h"

namespace gradmon {

// The training scalars of one plan: to the log, to records or to both, as each
// is configured. Training thread, on steps that are collected; nothing throws
// but the constructor: the first failure trips a fuse, and nothing is taken
// any more.
class TrainingScalars {
 public:
  struct Place {
    Rank rank;
    int world_size = 1;
    std::shared_ptr<NameTable> names;
    RecordStream& stream;  // outlives this, as the writer does
    WriterThread& writer;  // says what goes to the log
  };

  TrainingScalars(const Config& config, Revision revision, Place place);

  // Makes the hooks that norms need (again, where the model has grown);
  // `plan`: what the plan's own hooks collect.
  void attach(const HookSettings& plan, const WatchedModel& model);

  // `samples`: seen by all ranks so far; 0 where the program does not say.
  void begin_step(Step step, HookSet::Collect collect, std::int64_t samples) noexcept;
  // The hooks made by attach(), within a step that has begun.
  void begin_hooks(Step step) noexcept;
  void before_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;
  void after_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;
  void report(std::string_view name, double value) noexcept;
  void count_experts(std::string_view layer, const std::vector<std::int64_t>& tokens) noexcept;
  // A record on its way from the plan's own hooks.
  void see(const Record& record) noexcept;
  // After the plan's own hooks have handed over theirs.
  void end_step(std::int64_t samples) noexcept;

  std::optional<HookFailure> failure() const;
  // Of those asked for, what no step so far has had; none before the first step's end.
  std::vector<std::string> warnings() const;

 private:
  void write_rows(const std::vector<ScalarRow>& rows, std::int64_t samples);
  void write_log(const std::vector<ScalarRow>& rows, std::int64_t samples);

  const Place place_;
  HookFuse fuse_;
  ScalarBoard board_;
  RowWriter rows_;
  Step step_;
  bool ended_one_ = false;
  // Keep last: tells the board.
  std::unique_ptr<NormHooks> norms_;
};

}  // namespace gradmon
