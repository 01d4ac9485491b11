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

// First and second moment: Adam and AdamW exp_avg and exp_avg_sq, SGD
// momentum_buffer and none, RMSprop momentum_buffer and square_avg; the momentum
// only where its group has one. Of any other optimizer every state is empty.
class LibtorchOptimizerState : public OptimizerState {
 public:
  // `optimizer` outlives this, with its groups as they are.
  explicit LibtorchOptimizerState(const torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {}

  ParameterState of(const at::Tensor& parameter) const override;

 private:
  const torch::optim::Optimizer& optimizer_;
  // By parameter; filled when first asked.
  mutable std::unordered_map<const void*, const torch::optim::OptimizerOptions*> options_;
};

}  // namespace gradmon
