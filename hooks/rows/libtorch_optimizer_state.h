// SPDX-License-Identifier: Apache-2.0
// The state of libtorch's own optimizers: Adam, AdamW, SGD, RMSprop.
#pragma once

#include <unordered_map>

#include "hooks/rows/optimizer_state.h"

namespace torch::optim {
class Optimizer;
class OptimizerOptions;
}  // namespace torch::optim

namespace gradmon {

// First and second moment: exp_avg and exp_avg_sq (Adam, AdamW); momentum_buffer and none (SGD);
// momentum_buffer and square_avg (RMSprop). momentum_buffer exists only if the parameter group uses
// momentum. Adam and AdamW have AdamStep. The state of any other optimizer is empty.
class LibtorchOptimizerState : public OptimizerState {
 public:
  // `optimizer` must outlive this object, with unchanged groups.
  explicit LibtorchOptimizerState(const torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {}

  ParameterState of(const at::Tensor& parameter) const override;

 private:
  const torch::optim::Optimizer& optimizer_;
  // By parameter; filled at the first call.
  mutable std::unordered_map<const void*, const torch::optim::OptimizerOptions*> options_;
};

}  // namespace gradmon
