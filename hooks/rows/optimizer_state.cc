// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/optimizer_state.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <sstream>
#include <tuple>
#include <type_traits>

namespace gradmon {
namespace {

using States = std::decay_t<decltype(std::declval<const torch::optim::Optimizer&>().state())>;

// The key of an optimizer's state: the parameter's pointer in torch 2.x, the pointer as text in 1.13.
template <typename Key>
Key key_of(c10::TensorImpl* parameter) {
  if constexpr (std::is_same_v<Key, std::string>) {
    std::ostringstream text;
    text << parameter;
    return text.str();
  } else {
    return parameter;
  }
}

template <typename State>
const State* kept_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const States& states = optimizer.state();
  const auto found = states.find(key_of<States::key_type>(parameter.unsafeGetTensorImpl()));
  return found == states.end() ? nullptr : dynamic_cast<const State*>(found->second.get());
}

template <typename State, typename Options>
ParameterState adam_state(const State* kept, const Options& options) {
  ParameterState state;
  state.adam.emplace();
  std::tie(state.adam->beta1, state.adam->beta2) = options.betas();
  state.adam->eps = options.eps();
  state.adam->steps = kept ? static_cast<double>(kept->step()) : 0;
  state.first_moment = kept ? kept->exp_avg() : at::Tensor();
  state.second_moment = kept ? kept->exp_avg_sq() : at::Tensor();
  return state;
}

ParameterState sgd_state(const torch::optim::SGDParamState* kept, const torch::optim::SGDOptions& options) {
  ParameterState state;
  if (options.momentum() != 0) state.first_moment = kept ? kept->momentum_buffer() : at::Tensor();
  return state;
}

ParameterState rmsprop_state(const torch::optim::RMSpropParamState* kept,
                             const torch::optim::RMSpropOptions& options) {
  ParameterState state;
  if (options.momentum() > 0) state.first_moment = kept ? kept->momentum_buffer() : at::Tensor();
  state.second_moment = kept ? kept->square_avg() : at::Tensor();
  return state;
}

}  // namespace

ParameterState LibtorchOptimizerState::of(const at::Tensor& parameter) const {
  if (options_.empty()) {
    for (const auto& group : optimizer_.param_groups()) {
      const auto& options = group.has_options() ? group.options() : optimizer_.defaults();
      for (const at::Tensor& one : group.params()) options_.emplace(one.unsafeGetTensorImpl(), &options);
    }
  }
  const auto found = options_.find(parameter.unsafeGetTensorImpl());
  if (found == options_.end()) return {};
  using namespace torch::optim;
  if (const auto* adam = dynamic_cast<const AdamOptions*>(found->second))
    return adam_state(kept_of<AdamParamState>(optimizer_, parameter), *adam);
  if (const auto* adamw = dynamic_cast<const AdamWOptions*>(found->second))
    return adam_state(kept_of<AdamWParamState>(optimizer_, parameter), *adamw);
  if (const auto* sgd = dynamic_cast<const SGDOptions*>(found->second))
    return sgd_state(kept_of<SGDParamState>(optimizer_, parameter), *sgd);
  if (const auto* rmsprop = dynamic_cast<const RMSpropOptions*>(found->second))
    return rmsprop_state(kept_of<RMSpropParamState>(optimizer_, parameter), *rmsprop);
  return {};
}

}  // namespace gradmon
