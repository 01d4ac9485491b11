// SPDX-License-Identifier: Apache-2.0
// Gradients as the optimizer is about to use them: grad_reduced.
#pragma once

#include <vector>

#include "hooks/gradients/gradient_hooks.h"
#include "hooks/rows/probe.h"

namespace gradmon {

// Has only the parameters that took part in the step. If a step has several updates, the last counts.
class GradientProbe : public Probe {
 public:
  // `watched`, `hooks` and `fuse` must outlive this.
  GradientProbe(const std::vector<WatchedTensor>& watched, GradientHooks& hooks, double eps, HookFuse& fuse);

  bool reads(UpdateReads reads) const override { return reads == UpdateReads::gradients; }
  void begin_step(Step step) override;
  void before_update(const Update& update) override;
  void write_rows(RowWriter& rows) override;

 private:
  const std::vector<WatchedTensor>& watched_;
  GradientHooks& hooks_;
  const double eps_;
  HookFuse& fuse_;
  std::vector<Reading> reduced_;
};

}  // namespace gradmon
