// SPDX-License-Identifier: Apache-2.0
// What was read of one parameter in one step, and the parameter itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hooks/rows/hook_fuse.h"
#include "hooks/stats/tensor_stats.h"
#include "hooks/names/watched_model.h"

namespace gradmon {

// A parameter selected by the plan. Holding the tensor keeps its memory while
// the plan is in force.
struct Watched {
  at::Tensor tensor;
  std::string name;                                  // as records call it
  std::uint32_t target = 0;                          // the stream's id of it
  std::uint64_t place = 0;                           // in the model's list
  bool before_reduction_only = false;                // another rank writes the rest
  std::function<MainGradient()> main_gradient = {};  // as WatchedParameter's
};

// Used again each step, so that a step allocates nothing.
struct Reading {
  bool present = false;
  TensorStats stats;
  double scale = 1;  // that the tensor is multiplied by: rows have its values without
  std::string why;   // not_applicable: of this tensor in particular; empty: of its sort
  std::vector<std::int64_t> sizes;
  // Not null: a device still computes the values (NaN until then), of the tensor
  // as it was. RowWriter waits for those of all rows at once; settle() for some.
  std::shared_ptr<const DeviceNumbers> pending;

  // Reads the tensor, or queues that. One that torch cannot read (a nested one),
  // or that is written to meanwhile, is not applicable; a failure of ours trips
  // the fuse and leaves no reading. `eps` is of the values without `scale`, which is > 0.
  void take(const at::Tensor& tensor, double eps, const std::string& name, HookFuse& fuse,
            double scale = 1) noexcept;
  // There is one, but it cannot be told: not applicable.
  void lacks(std::string reason) noexcept;
};

void forget(std::vector<Reading>& readings);
// Waits, once, for the values that are pending.
void settle(std::vector<Reading>& readings);

}  // namespace gradmon
