// SPDX-License-Identifier: Apache-2.0
// Weights before and after the optimizer's step: param_origin, param_updated.
#pragma once

#include <vector>

#include "hooks/rows/probe.h"
#include "hooks/rows/reading.h"

namespace gradmon {

// If a step has several updates, param_origin precedes the first and param_updated follows the last.
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
