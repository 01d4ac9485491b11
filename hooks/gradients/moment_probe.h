// SPDX-License-Identifier: Apache-2.0
// An optimizer's moments as it finds them: exp_avg, exp_avg_sq.
#pragma once

#include <cstdint>
#include <vector>

#include "hooks/gradients/gradient_hooks.h"
#include "hooks/rows/probe.h"

namespace gradmon {

// As they stand just before the step, so none at a parameter's very first; of
// several updates in a step the first counts. Only of parameters that take part
// in the step: the moments of others are stale. An optimizer that keeps neither
// of a parameter is counted as not applicable.
class MomentProbe : public Probe {
 public:
  // `watched`, `hooks`, `fuse` outlive this.
  MomentProbe(const std::vector<Watched>& watched, GradientHooks& hooks, double eps, HookFuse& fuse);

  void begin_step(Step step) override;
  void before_update(const Update& update) override;
  void write_rows(RowWriter& rows) override;

 private:
  enum class Seen : std::uint8_t { no, yes, keeps_none };

  const std::vector<Watched>& watched_;
  GradientHooks& hooks_;
  const double eps_;
  HookFuse& fuse_;
  std::vector<Seen> seen_;
  std::vector<Reading> first_, second_;
};

}  // namespace gradmon
