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

// Brings a ScalarBoard the norms that its scalars are made of. Where the plan
// collects the same tensors anyway, their records are looked at; else they are
// read by hooks of this object's own: over all parameters whatever `targets`
// says for a norm over all, over those selected for a norm of each. Training
// thread; nothing throws but the constructor.
class NormHooks {
 public:
  // `plan`: what the plan's own hooks collect. `board`, `names` outlive this.
  NormHooks(const HookSettings& plan, const WatchedModel& model, ScalarBoard& board, NameTable& names);
  ~NormHooks();

  // As those of HookSet, around them.
  void begin_step(Step step, HookSet::Collect collect) noexcept;
  void before_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;
  void after_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept;
  void end_step() noexcept;
  // A record that the plan's hooks have made.
  void see(const Record& record);

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
