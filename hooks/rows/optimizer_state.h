// SPDX-License-Identifier: Apache-2.0
// What an optimizer keeps of a parameter, whichever optimizer it is: another one
// is one more implementation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace gradmon {

// A moment not set: this optimizer keeps none of this parameter. Set but not
// defined: none yet (before the first step, or a parameter never stepped).
struct ParameterState {
  std::optional<at::Tensor> first_moment;   // exp_avg, or the momentum
  std::optional<at::Tensor> second_moment;  // exp_avg_sq, or the mean of squares
  std::optional<std::int64_t> steps;        // taken with this parameter so far
  std::optional<double> beta1, beta2, eps;  // Adam's, where it is Adam
};

// Training thread. Not kept beyond the update for which it was made.
class OptimizerState {
 public:
  virtual ~OptimizerState() = default;
  // As it stands now; empty for a parameter that is not the optimizer's. The
  // tensors are the optimizer's own, for reading only. Throws what torch throws.
  virtual ParameterState of(const at::Tensor& parameter) const = 0;
  // The gradient that it is about to use: the parameter's, or what the program keeps
  // in its place (Megatron's main_grad). May be undefined.
  virtual at::Tensor gradient_of(const at::Tensor& parameter) const { return parameter.grad(); }
  // What gradients are multiplied by and the optimizer itself will divide by (a fused one
  // under GradScaler); > 0.
  virtual double gradient_scale() const { return 1; }
};

}  // namespace gradmon
