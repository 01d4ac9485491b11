// SPDX-License-Identifier: Apache-2.0
// Reads the state that a Python optimizer keeps for its parameters.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hooks/rows/optimizer_state.h"

namespace gradmon {

// The parameters of all groups, then those with master copies. Waits for no device. With the GIL; throws
// what Python throws.
std::vector<at::Tensor> parameters_of(const pybind11::handle& optimizer);

// A run of a parameter's elements in a tensor that an optimizer updates in its place.
struct CarriedPiece {
  at::Tensor parameter;    // the user's
  at::Tensor carrier;      // one of the optimizer's parameters
  std::int64_t start = 0;  // of the piece, in the flattened carrier
  std::int64_t numel = 0;  // of the piece; negative: the carrier is a copy of the whole parameter
};

// Pieces as Python passes them: parameter, carrier, start, numel.
using PieceTuples = std::vector<std::tuple<at::Tensor, at::Tensor, std::int64_t, std::int64_t>>;
std::vector<CarriedPiece> carried(const PieceTuples& pieces);

// The constructor reads everything with the GIL held; the other members do not need the GIL.
//
// Moments are found by key, not by class: in `state[parameter]` the first moment is exp_avg or
// momentum_buffer, the second exp_avg_sq or square_avg. If a moment is missing, the group's options (betas;
// momentum; alpha, for RMSprop) decide if it will come. For torch's own four optimizers the moments are those
// of LibtorchOptimizerState. AdamStep is set if the group has betas and eps, and the state or else the group
// has `step`: numbers or tensors; betas and eps on a device are not read.
//
// A parameter with a master copy (Megatron's float16_groups, apex' fp16_groups) has the state of its copy. A
// parameter's `main_grad`, if it exists, is its gradient. The optimizer's `grad_scale` is the factor that it
// divides by itself; reading a scale on a device waits for the device.
class PythonOptimizerState : public OptimizerState {
 public:
  // `gradient_scale`: the factor that the optimizer divides by itself, if it has no `grad_scale`. Throws
  // what Python throws.
  explicit PythonOptimizerState(const pybind11::handle& optimizer, double gradient_scale = 1);

  // The user's parameters in place of the tensors that the optimizer updates for them. Skips pieces whose
  // carrier is now in none of its parameter groups; a carrier's gradient is its `decoupled_grad`, if it
  // exists, else its `grad`. Everything is read as a view.
  PythonOptimizerState(const pybind11::handle& optimizer, const std::vector<CarriedPiece>& pieces,
                       UpdateReads reads = UpdateReads::everything);

  ParameterState of(const at::Tensor& parameter) const override;
  at::Tensor value_of(const at::Tensor& parameter) const override;
  at::Tensor gradient_of(const at::Tensor& parameter) const override;
  double gradient_scale() const override { return gradient_scale_; }
  // See parameters_of().
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  void add(const pybind11::handle& parameter, const at::Tensor& tensor, ParameterState state);

  std::vector<at::Tensor> parameters_;
  std::unordered_map<const void*, ParameterState> states_;
  std::unordered_map<const void*, at::Tensor> main_grads_;
  std::unordered_map<const void*, at::Tensor> values_;  // of parameters that are updated in another tensor
  double gradient_scale_;
};

// Parameter, reduced gradient, first moment (None: still to come).
using EarlyTuples = std::vector<std::tuple<at::Tensor, at::Tensor, std::optional<at::Tensor>>>;

// Gradients and first moments that an adapter passes before an engine overwrites them. No copy.
class EarlyGradients : public OptimizerState {
 public:
  // `gradient_scale`: the factor in the gradients.
  EarlyGradients(const EarlyTuples& passed, double gradient_scale);

  ParameterState of(const at::Tensor& parameter) const override;
  at::Tensor gradient_of(const at::Tensor& parameter) const override;
  double gradient_scale() const override { return gradient_scale_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  std::vector<at::Tensor> parameters_;
  std::unordered_map<const void*, std::pair<at::Tensor, at::Tensor>> passed_;  // gradient, moment
  const double gradient_scale_;
};

}  // namespace gradmon
