// SPDX-License-Identifier: Apache-2.0
// A watched parameter, and what was read of a tensor in one step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hooks/names/watched_model.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/stats/tensor_stats.h"

namespace gradmon {

// A parameter that the plan selects. It keeps the tensor's memory alive while the plan is in force.
struct Watched {
  at::Tensor tensor;
  std::string name;                                  // in the rows
  std::uint32_t target = 0;                          // the stream's id of the name
  std::uint64_t place = 0;                           // index in the model's list
  bool before_reduction_only = false;                // another rank writes the rest
  std::function<MainGradient()> main_gradient = {};  // as WatchedParameter's
};

// Reused in each step, so that a step allocates nothing.
struct Reading {
  bool present = false;
  TensorStats stats;
  double scale = 1;  // factor in the tensor; rows have the values without it
  std::string why;   // why this tensor is not applicable; "" if its kind of tensor never is
  std::vector<std::int64_t> sizes;
  // Not null: a device is still computing the values of the tensor as it was (NaN until then).
  // RowWriter waits for those of all rows at once, settle() for those of one reading.
  std::shared_ptr<const DeviceNumbers> pending;

  // Reads the tensor, or queues the reading on its device. A tensor that torch cannot read (a nested
  // one), or that is written during the reading, is not applicable. A failure of ours trips the fuse
  // and leaves no reading. `eps` refers to the values without `scale`, which is > 0.
  void take(const at::Tensor& tensor, double eps, const std::string& name, HookFuse& fuse,
            double scale = 1) noexcept;
  // There is a tensor, but its values are unknown: not applicable.
  void lacks(std::string reason) noexcept;
};

void forget(std::vector<Reading>& readings);
// Waits for the pending values.
void settle(std::vector<Reading>& readings);

}  // namespace gradmon
