// SPDX-License-Identifier: Apache-2.0
// What an optimizer finds and leaves: the gradients it is about to use, and
// weights before and after its step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "hooks/reading.h"

namespace gradmon {

// Training thread. Holds the last readings of three kinds for every parameter.
class WeightProbe {
 public:
  // `watched`, `fuse` outlive this.
  WeightProbe(const std::vector<Watched>& watched, double eps, HookFuse& fuse);

  void begin_step();
  // Places in `watched` of an optimizer's parameters, rising; of all where the
  // list is empty. Those that are not watched are left out.
  std::vector<std::size_t> places_of(const std::vector<at::Tensor>& optimizer_parameters) const;

  void read_gradient(std::size_t parameter) noexcept;
  // The first of a step stays.
  void read_origin(std::size_t parameter) noexcept;
  void read_updated(std::size_t parameter) noexcept;

  const std::vector<Reading>& gradients() const { return gradients_; }
  const std::vector<Reading>& origins() const { return origins_; }
  const std::vector<Reading>& updates() const { return updates_; }

 private:
  const std::vector<Watched>& watched_;
  const double eps_;
  HookFuse& fuse_;
  std::unordered_map<const void*, std::size_t> places_;  // by tensor; `watched` holds them all
  std::vector<Reading> gradients_, origins_, updates_;
};

}  // namespace gradmon
