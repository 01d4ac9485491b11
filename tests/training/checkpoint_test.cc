// SPDX-License-Identifier: Apache-2.0
#include "tests/training/checkpoint.h"

#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/nn/modules/linear.h>

#include "control/debian_version.h"
#include "tests/training/sample_training.h"
#include "tests/training/gradient_accumulation.h"
#include "tests/training/trainable_parameters.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

struct StepResult {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;
};

StepResult run_step(TransformerShape shape, BlockValues values, const std::vector<std::string>& frozen) {
  shape.block_values = values;
  const auto model = seeded_model(shape);
  freeze(*model, frozen);
  const auto done = accumulate_gradients(*model, {sample_batch(3), sample_batch(2)});
  return {done.loss, gradients(*model)};
}

TEST_CASE("recomputed blocks give the same gradients as kept blocks") {
  TransformerShape shape = small_shape();
  std::vector<std::string> frozen;
  SECTION("with a perceptron") {}
  SECTION("with in-place activations") { shape.activation = Activation::relu_in_place; }
  SECTION("with a mixture of experts") { shape.experts = 5; }
  SECTION("with two experts per token") {
    shape.experts = 5;
    shape.experts_per_token = 2;
  }
  SECTION("with a shared weight") { shape.head_weight = HeadWeight::token_embedding; }
  SECTION("where the first block's input needs no gradient") { frozen = {"embedding"}; }
  SECTION("where a whole block is frozen") { frozen = {"embedding", "blocks.0."}; }
  const StepResult kept = run_step(shape, BlockValues::kept, frozen);
  const StepResult recomputed = run_step(shape, BlockValues::recomputed, frozen);
  REQUIRE(equal_tensors({kept.loss}, {recomputed.loss}));
  REQUIRE(equal_tensors(kept.gradients, recomputed.gradients));
}

TEST_CASE("a segment runs once without gradients in forward and once inside the backward's graph task") {
  torch::nn::Linear linear(4, 4);
  std::vector<std::pair<bool, bool>> runs;  // {gradients enabled, in a graph task}
  const auto segment = [&](const at::Tensor& x) {
    runs.emplace_back(at::GradMode::is_enabled(),
                      torch::autograd::get_current_graph_task_nodes_in_graph() != nullptr);
    return linear->forward(x);
  };
  const auto output = checkpoint(segment, at::ones({2, 4})).sum();
  REQUIRE(runs == std::vector<std::pair<bool, bool>>{{false, false}});
  output.backward();
  REQUIRE(runs == std::vector<std::pair<bool, bool>>{{false, false}, {true, true}});
  REQUIRE(linear->weight.grad().defined());
}

TEST_CASE("without gradient mode a checkpoint records no graph") {
  const at::NoGradGuard no_graph;
  const auto output = checkpoint([](const at::Tensor& x) { return x * 2; }, at::ones({2}).requires_grad_());
  REQUIRE_FALSE(output.requires_grad());
}

TEST_CASE("backward fails if the input of a checkpoint was overwritten") {
  const auto x = at::ones({2}).requires_grad_() * 1;
  const auto output = checkpoint([](const at::Tensor& values) { return values * values; }, x);
  x.detach().zero_();
  REQUIRE_THROWS(output.sum().backward());
}

}  // namespace
}  // namespace gradmon
