// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/optimizer_state.h"

#include <ATen/ops/ones.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "tests/hooks/tiny_model.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using namespace torch::optim;

at::Tensor weight() { return at::ones({3}).requires_grad_(); }

// One step in which every element of the gradient is 2.
void step(Optimizer& optimizer, at::Tensor& parameter) {
  parameter.mutable_grad() = at::ones({3}) * 2;
  optimizer.step();
}

bool all_near(const std::optional<at::Tensor>& tensor, double value) {
  return tensor && tensor->defined() && near(norm_of(*tensor), std::sqrt(3.0) * value);
}

bool not_yet_defined(const std::optional<at::Tensor>& tensor) { return tensor && !tensor->defined(); }

template <typename O, typename Options>
void check_adam() {
  at::Tensor parameter = weight();
  O optimizer({parameter}, Options(0.1).betas({0.8, 0.9}).eps(1e-6));
  const LibtorchOptimizerState state(optimizer);
  CHECK(not_yet_defined(state.of(parameter).first_moment));
  CHECK(not_yet_defined(state.of(parameter).second_moment));
  step(optimizer, parameter);
  step(optimizer, parameter);
  const ParameterState kept = state.of(parameter);
  CHECK(all_near(kept.first_moment, 0.8 * 0.4 + 0.4));
  CHECK(all_near(kept.second_moment, 0.9 * 0.4 + 0.4));
  REQUIRE(kept.adam);
  CHECK(kept.adam->beta1 == 0.8);
  CHECK(kept.adam->beta2 == 0.9);
  CHECK(kept.adam->eps == 1e-6);
  CHECK(kept.adam->steps == 2);
}

TEST_CASE("the moments of Adam and AdamW are the averages that they keep") {
  check_adam<Adam, AdamOptions>();
  check_adam<AdamW, AdamWOptions>();
}

TEST_CASE("the first moment of SGD is its momentum if it has one") {
  at::Tensor parameter = weight();
  SGD with({parameter}, SGDOptions(0.1).momentum(0.5));
  CHECK(not_yet_defined(LibtorchOptimizerState(with).of(parameter).first_moment));
  step(with, parameter);
  step(with, parameter);
  const ParameterState kept = LibtorchOptimizerState(with).of(parameter);
  CHECK(all_near(kept.first_moment, 3));
  CHECK_FALSE(kept.second_moment);

  SGD without({parameter}, SGDOptions(0.1));
  step(without, parameter);
  CHECK_FALSE(LibtorchOptimizerState(without).of(parameter).first_moment);
}

TEST_CASE("the moments of RMSprop are its momentum and its mean of squares") {
  at::Tensor parameter = weight();
  RMSprop with({parameter}, RMSpropOptions(0.1).alpha(0.5).momentum(0.5));
  step(with, parameter);
  const ParameterState kept = LibtorchOptimizerState(with).of(parameter);
  CHECK(all_near(kept.first_moment, 2 / (std::sqrt(2.0) + 1e-8)));
  CHECK(all_near(kept.second_moment, 2));
  CHECK_FALSE(kept.adam);

  RMSprop without({parameter}, RMSpropOptions(0.1));
  step(without, parameter);
  CHECK_FALSE(LibtorchOptimizerState(without).of(parameter).first_moment);
  CHECK(LibtorchOptimizerState(without).of(parameter).second_moment->defined());
}

TEST_CASE("each parameter group of an optimizer has its own options") {
  at::Tensor first = weight(), second = weight();
  SGD optimizer(
      std::vector<OptimizerParamGroup>{
          OptimizerParamGroup({first}, std::make_unique<SGDOptions>(SGDOptions(0.1).momentum(0.5))),
          OptimizerParamGroup({second})},
      SGDOptions(0.1));
  CHECK(LibtorchOptimizerState(optimizer).of(first).first_moment);
  CHECK_FALSE(LibtorchOptimizerState(optimizer).of(second).first_moment);
}

TEST_CASE("the state of an unsupported optimizer or of an unknown parameter is empty") {
  at::Tensor parameter = weight(), unknown_parameter = weight();
  Adagrad other({parameter});
  step(other, parameter);
  CHECK_FALSE(LibtorchOptimizerState(other).of(parameter).first_moment);
  CHECK_FALSE(LibtorchOptimizerState(other).of(parameter).second_moment);
  Adam adam({parameter});
  CHECK_FALSE(LibtorchOptimizerState(adam).of(unknown_parameter).first_moment);
}

}  // namespace
}  // namespace gradmon
