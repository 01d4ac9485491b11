// SPDX-License-Identifier: Apache-2.0
// What an optimizer of Python keeps of its parameters.
#pragma once

#include <pybind11/pybind11.h>

#include <unordered_map>
#include <vector>

#include "hooks/optimizer_state.h"

namespace gradmon {

// Taken down whole, with the GIL held, so that reading needs it no more. By what
// is there, not by class: first moment exp_avg or momentum_buffer, second
// exp_avg_sq or square_avg of `state[parameter]`; where there is nothing yet, the
// group's options tell whether there will be (betas; momentum; alpha, which is
// RMSprop's). A parameter's `main_grad`, where it has one, stands for its gradient;
// the optimizer's `grad_scale` is what a scaler leaves to it to divide by (where that is on
// a device, it is waited for). The same moments as LibtorchOptimizerState of torch's own four;
// steps and hyperparameters are not read.
class PythonOptimizerState : public OptimizerState {
 public:
  // `gradient_scale`: what else a scaler leaves to it to divide by. Throws what Python throws.
  explicit PythonOptimizerState(const pybind11::handle& optimizer, double gradient_scale = 1);

  ParameterState of(const at::Tensor& parameter) const override;
  at::Tensor gradient_of(const at::Tensor& parameter) const override;
  double gradient_scale() const override { return gradient_scale_; }
  // All that its groups list.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  std::vector<at::Tensor> parameters_;
  std::unordered_map<const void*, ParameterState> states_;
  std::unordered_map<const void*, at::Tensor> main_grads_;
  double gradient_scale_;
};

}  // namespace gradmon
