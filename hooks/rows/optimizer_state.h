// SPDX-License-Identifier: Apache-2.0
// The state that an optimizer keeps for a parameter. Each family of optimizers has its implementation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "hooks/stats/moment_stats.h"

namespace torch::optim {
class Optimizer;
class OptimizerOptions;
}  // namespace torch::optim

namespace gradmon {

// An unset moment: the optimizer keeps none for this parameter. A moment that is set but undefined does not
// exist yet (before the parameter's first step).
struct ParameterState {
  std::optional<at::Tensor> first_moment;   // exp_avg, or the momentum
  std::optional<at::Tensor> second_moment;  // exp_avg_sq, or the mean of squares
  std::optional<AdamStep> adam;             // set if the optimizer corrects both moments as Adam does
  bool maximize = false;                    // the optimizer follows the negated gradient
};

// The part of an update that a call of HookSet::before_update() passes. everything_left_out: no update
// follows. weights: the optimizer will call its closure; a later call passes the rest. gradients: the update
// was made unseen. gradients_and_moments: an engine is about to overwrite the gradients with its update; the
// values follow just before the optimizer's step.
enum class UpdateReads : std::uint8_t {
  everything,
  everything_left_out,
  weights,
  gradients,
  gradients_and_moments,
  values
};

// Training thread. Valid during one update only.
class OptimizerState {
 public:
  virtual ~OptimizerState() = default;
  // The current state; empty if the optimizer does not hold the parameter. The tensors are the
  // optimizer's own: read only. Throws what torch throws.
  virtual ParameterState of(const at::Tensor& parameter) const = 0;
  // The gradient that the optimizer will use: the parameter's, or another that the program keeps (Megatron's
  // main_grad). May be undefined.
  virtual at::Tensor gradient_of(const at::Tensor& parameter) const { return parameter.grad(); }
  // The values that the optimizer updates: the parameter's own, a master copy, or the piece that this rank
  // holds. Undefined: this rank holds none.
  virtual at::Tensor value_of(const at::Tensor& parameter) const { return parameter; }
  // The factor that the gradients still contain and that the optimizer itself will divide out (a fused
  // optimizer with a GradScaler); > 0.
  virtual double gradient_scale() const { return 1; }
  UpdateReads reads() const { return reads_; }
  void set_reads(UpdateReads reads) { reads_ = reads; }

 private:
  UpdateReads reads_ = UpdateReads::everything;
};

// The state of libtorch's own optimizers: Adam, AdamW, SGD, RMSprop. First and second moment: exp_avg and
// exp_avg_sq (Adam, AdamW); momentum_buffer and none (SGD); momentum_buffer and square_avg (RMSprop).
// momentum_buffer exists only if the parameter group uses momentum. Adam and AdamW have AdamStep. The state
// of any other optimizer is empty.
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
