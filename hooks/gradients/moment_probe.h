// SPDX-License-Identifier: Apache-2.0
// The optimizer's moments before its step: exp_avg, exp_avg_sq.
#pragma once

#include <cstdint>
#include <vector>

#include "hooks/gradients/gradient_hooks.h"
#include "hooks/rows/probe.h"

namespace gradmon {

// Reads the moments just before the update, so a parameter has none at its first update. If a step has
// several updates, the first counts. Has only the parameters that take part in the step, because other
// moments are stale. A parameter for which the optimizer keeps no moment is counted as not applicable.
class MomentProbe : public Probe {
 public:
  // `watched`, `hooks` and `fuse` must outlive this.
  MomentProbe(const std::vector<WatchedTensor>& watched, GradientHooks& hooks, double eps, HookFuse& fuse);

  void begin_step(Step step) override;
  void before_update(const Update& update) override;
  void write_rows(RowWriter& rows) override;

 private:
  // The moments that the optimizer keeps of a parameter, or will keep.
  struct Keeps {
    bool seen = false;  // in this step
    bool first = false;
    bool second = false;
  };

  const std::vector<WatchedTensor>& watched_;
  GradientHooks& hooks_;
  const double eps_;
  HookFuse& fuse_;
  std::vector<Keeps> keeps_;
  std::vector<Reading> first_, second_;
};

}  // namespace gradmon
