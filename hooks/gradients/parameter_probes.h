// SPDX-License-Identifier: Apache-2.0
// Probes of the gradients, moments and weights around the optimizer's step.
#pragma once

#include <vector>

#include "hooks/gradients/gradient_hooks.h"
#include "hooks/rows/probe.h"
#include "hooks/rows/reading.h"

namespace gradmon {

// Gradients as the optimizer is about to use them: grad_reduced. Has only the parameters that took part in
// the step. If a step has several updates, the last counts.
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

// The optimizer's moments before its step: exp_avg, exp_avg_sq. Reads the moments just before the update, so
// a parameter has none at its first update. If a step has several updates, the first counts. Has only the
// parameters that take part in the step, because other moments are stale. A parameter for which the optimizer
// keeps no moment is counted as not applicable.
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

// Weights before and after the optimizer's step: param_origin, param_updated. If a step has several updates,
// param_origin precedes the first and param_updated follows the last.
class WeightProbe : public Probe {
 public:
  // `watched` and `fuse` must outlive this.
  WeightProbe(const std::vector<WatchedTensor>& watched, double eps, HookFuse& fuse);

  bool reads(UpdateReads reads) const override { return reads == UpdateReads::weights; }
  void begin_step(Step step) override;
  void before_update(const Update& update) override;
  void after_update(const Update& update) override;
  void write_rows(RowWriter& rows) override;

 private:
  void read(std::size_t index, const Update& update, std::vector<Reading>& readings);

  const std::vector<WatchedTensor>& watched_;
  const double eps_;
  HookFuse& fuse_;
  std::vector<Reading> origins_, updates_;
};

}  // namespace gradmon
