// SPDX-License-Identifier: Apache-2.0
// Gradients before reduction (grad_unreduced) and as the optimizer is about to
// use them (grad_reduced).
#pragma once

#include <vector>

#include "hooks/gradient_hooks.h"
#include "hooks/probe.h"

namespace gradmon {

// A parameter has rows only if it took part: its accumulator fired, or its
// gradient was replaced or written and is not all zeros (so zero_grad alone
// makes no row).
class GradientProbe : public Probe {
 public:
  // `watched`, `fuse` outlive this.
  GradientProbe(const std::vector<Watched>& watched, double eps, HookFuse& fuse);

  void begin_step(Step step) override;
  void disarm() noexcept override { hooks_.disarm(); }
  void before_update(const Update& update) override;
  void write_rows(RowWriter& rows) override;
  std::size_t attached() const noexcept override { return hooks_.attached(); }

 private:
  const std::vector<Watched>& watched_;
  const double eps_;
  HookFuse& fuse_;
  std::vector<Reading> reduced_;
  GradientHooks hooks_;
};

}  // namespace gradmon
