// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "hooks/hook_set.h"
#include "runtime/scalars/scalar_board.h"
#include "writers/queue/name_table.h"

namespace gradmon {

// Passes to a ScalarBoard the norms that its scalars need. If the plan collects the same tensors, takes the
// norms from the plan's records (on_record()). If not, attaches its own hooks: to all parameters, regardless
// of `targets`, for a norm over all parameters; to the selected ones for norms of single parameters. Training
// thread; only the constructor throws.
class NormHooks {
 public:
  // `plan`: settings of the plan's own hooks. `board` and `names` must outlive this object. Norms of kinds
  // that are not `allowed` are not taken.
  NormHooks(const HookSettings& plan, const WatchedModel& model, ScalarBoard& board, NameTable& names,
            KindSet allowed = kAllKinds);
  ~NormHooks();

  // Like the members of HookSet.
  void begin_step(Step step, HookSet::Collect collect) noexcept;
  void gathered(const void* unit) noexcept;
  void before_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;
  void after_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;
  void deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept;
  void end_step() noexcept;
  // True if on_record() takes any norm.
  bool sees_plan() const noexcept { return !seen_in_plan_.empty(); }
  // Takes the norm from a record that the plan's hooks have made.
  void on_record(const Record& record);
  // The plan's hooks could not read a tensor of this kind.
  void on_missing_row(Kind kind) noexcept;

  std::optional<HookFailure> failure() const;

 private:
  class Stream;
  struct Set {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<HookSet> hooks;
  };

  // Constant after construction.
  ScalarBoard& board_;
  std::vector<NormOf> seen_in_plan_;
  std::vector<Set> sets_;  // at most one for each NormOf
};

}  // namespace gradmon
