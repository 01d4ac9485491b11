// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "control/alert_rule.h"
#include "control/config/config.h"
#include "control/link/replica_outbox.h"
#include "hooks/hook_set.h"
#include "runtime/collect/step_rows.h"
#include "writers/queue/name_table.h"
#include "writers/queue/writer_thread.h"

namespace gradmon {

// The config's rule AnomalyRankDivergence; nullopt without it.
std::optional<AlertRule> divergence_rule_of(const Config& config);

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

  std::shared_ptr<const ReplicaTargets> targets_of(Kind kind, std::vector<std::uint32_t> ids);

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
  void before_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;
  void after_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;
  void deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept;
  // Passes the step's rows to the writer thread. A step whose rows StepRows refuses is not compared, and the
  // log says so once.
  void end_step() noexcept;
  // Instead of end_step() for a step that does not count.
  void drop_step() noexcept;

  std::chrono::nanoseconds hook_time() const noexcept;
  std::optional<HookFailure> failure() const;

 private:
  const Context context_;
  StepRows rows_;
  Step step_;
  bool refusal_logged_ = false;
  // Keep last: detach before the rest dies.
  std::unique_ptr<HookSet> hooks_;  // null: this rank writes all rows
};

}  // namespace gradmon
