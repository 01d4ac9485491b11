// SPDX-License-Identifier: Apache-2.0
// What an optimizer of Python keeps of its parameters.
#pragma once

#include <pybind11/pybind11.h>

#include <unordered_map>
#include <vector>

#include "hooks/rows/optimizer_state.h"

namespace gradmon {

// Taken down whole, with the GIL held, so that reading needs it no more. By what
// is there, not by class: first moment exp_avg or momentum_buffer, second
// exp_avg_sq or square_avg of `state[parameter]`; where there is nothing yet, the
// group's options tell whether there will be (betas; momentum; alpha, which is
// RMSprop's). A parameter that the optimizer holds a master copy of (Megatron's
// float16_groups, apex' fp16_groups) has what is kept of that. A parameter's `main_grad`, where it has one,
// stands for its gradient; the optimizer's `grad_scale` is what a scaler leaves to it to divide by (where
// that is on a device, it is waited for). The same moments as LibtorchOptimizerState of torch's own four;
// steps and hyperparameters are not read.
class PythonOptimizerState : public OptimizerState {
 public:
  // `gradient_scale`: what else a scaler leaves to it to divide by. Throws what Python throws.
  explicit PythonOptimizerState(const pybind11::handle& optimizer, double gradient_scale = 1);

  ParameterState of(const at::Tensor& parameter) const override;
  at::Tensor gradient_of(const at::Tensor& parameter) const override;
  double gradient_scale() const override { return gradient_scale_; }
  // All that its groups list, and those that it has master copies of.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  void add(const pybind11::handle& parameter, const at::Tensor& tensor, ParameterState state);
  void add_those_with_masters(const pybind11::handle& optimizer, const char* parameters, const char* masters);

  std::vector<at::Tensor> parameters_;
  std::unordered_map<const void*, ParameterState> states_;
  std::unordered_map<const void*, at::Tensor> main_grads_;
  double gradient_scale_;
};

}  // namespace gradmon
