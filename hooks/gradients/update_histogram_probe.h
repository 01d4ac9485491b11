// SPDX-License-Identifier: Apache-2.0
// Histograms of Adam's change to each parameter: update, ratio.
#pragma once

#include <string>
#include <vector>

#include "hooks/gradients/gradient_hooks.h"
#include "hooks/rows/probe.h"
#include "hooks/stats/adam_histograms.h"

namespace gradmon {

// Reads the moments just before the update, as MomentProbe does, so a parameter has no histogram at its first
// update. If a step has several updates, the first counts. Has only parameters that take part in the step. A
// parameter whose optimizer keeps no moments, betas, eps and steps of Adam is counted as not applicable.
class UpdateHistogramProbe : public Probe {
 public:
  // `watched` and `hooks` must outlive this.
  UpdateHistogramProbe(const std::vector<WatchedTensor>& watched, GradientHooks& hooks);

  void begin_step(Step step) override;
  void before_update(const Update& update) override;
  void write_rows(RowWriter& rows) override;

 private:
  struct Taken {
    bool seen = false;
    bool counted = false;
    std::string why_absent;  // "": counted, or there are no moments yet
    AdamHistograms histograms;
  };

  void read(const ParameterState& state, Taken& taken);
  void leave_out_zeros(RowWriter& rows);

  const std::vector<WatchedTensor>& watched_;
  GradientHooks& hooks_;
  std::vector<Taken> taken_;
};

}  // namespace gradmon
