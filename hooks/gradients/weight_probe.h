// SPDX-License-Identifier: Apache-2.0
// Weights as an optimizer finds and leaves them: param_origin, param_updated.
#pragma once

#include <vector>

#include "hooks/rows/probe.h"
#include "hooks/rows/reading.h"

namespace gradmon {

// Of several updates in a step the first origin and the last update count.
class WeightProbe : public Probe {
 public:
  // `watched`, `fuse` outlive this.
  WeightProbe(const std::vector<Watched>& watched, double eps, HookFuse& fuse);

  void begin_step(Step step) override;
  void before_update(const Update& update) override;
  void after_update(const Update& update) override;
  void write_rows(RowWriter& rows) override;

 private:
  const std::vector<Watched>& watched_;
  const double eps_;
  HookFuse& fuse_;
  std::vector<Reading> origins_, updates_;
};

}  // namespace gradmon
