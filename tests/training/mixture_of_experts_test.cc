// SPDX-License-Identifier: Apache-2.0
#include "tests/training/mixture_of_experts.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>
#include <torch/utils.h>

#include "control/debian_version.h"
#include "tests/training/sample_training.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr std::int64_t kExperts = 6;

std::shared_ptr<MixtureOfExperts> seeded_mixture(std::int64_t experts_per_token) {
  torch::manual_seed(5);
  return std::make_shared<MixtureOfExperts>(
      MixtureOfExperts::Shape{4, kExperts, experts_per_token, Activation::gelu});
}

// The output of `model`, computed token by token and expert by expert.
at::Tensor reference(const MixtureOfExperts& model, const at::Tensor& x, std::int64_t experts_per_token) {
  const auto p = model.named_parameters();
  const auto tokens = x.flatten(0, 1);
  const auto result = at::zeros_like(tokens);
  for (std::int64_t token = 0; token < tokens.size(0); ++token) {
    const auto probabilities =
        at::softmax(at::linear(tokens[token], p["router.weight"], p["router.bias"]), -1);
    const auto order = probabilities.argsort(-1, true);
    for (std::int64_t i = 0; i < experts_per_token; ++i) {
      const auto expert = order[i].item<std::int64_t>();
      const auto name = "experts." + std::to_string(expert);
      const auto wide =
          at::gelu(at::linear(tokens[token], p[name + ".expand.weight"], p[name + ".expand.bias"]));
      const auto answer = at::linear(wide, p[name + ".contract.weight"], p[name + ".contract.bias"]);
      result[token] += probabilities[expert] * answer;
    }
  }
  return result.view(x.sizes());
}

TEST_CASE("a token's output is the sum of its experts' outputs weighted by the router") {
  const auto experts_per_token = GENERATE(std::int64_t{1}, std::int64_t{2});
  const auto model = seeded_mixture(experts_per_token);
  const auto x = at::randn({3, 5, 4});
  const at::NoGradGuard no_graph;
  REQUIRE(at::allclose(model->forward(x), reference(*model, x, experts_per_token), 1e-5, 1e-6));
  REQUIRE(model->tokens_per_expert().numel() == kExperts);
  REQUIRE(model->tokens_per_expert().sum().item<std::int64_t>() == 15 * experts_per_token);
}

TEST_CASE("only the router and the experts with tokens get gradients") {
  const auto model = seeded_mixture(1);
  model->forward(at::randn({1, 3, 4})).sum().backward();
  const auto tokens = model->tokens_per_expert();
  int without = 0;
  for (std::int64_t i = 0; i < kExperts; ++i) {
    const bool asked = tokens[i].item<std::int64_t>() != 0;
    const auto name = "experts." + std::to_string(i);
    REQUIRE(model->named_parameters()[name + ".expand.weight"].grad().defined() == asked);
    REQUIRE(model->named_parameters()[name + ".contract.bias"].grad().defined() == asked);
    if (!asked) without += 1;
  }
  REQUIRE(without >= 3);
  REQUIRE(model->named_parameters()["router.weight"].grad().abs().sum().item<float>() > 0);
}

TEST_CASE("the expert load names the mixture and does not count recomputation") {
  TransformerShape shape = small_shape();
  const auto dense = seeded_model(shape);
  dense->forward(sample_batch(1).inputs);
  REQUIRE(dense->expert_load().empty());
  shape.experts = 3;
  shape.block_values = BlockValues::recomputed;
  const auto model = seeded_model(shape);
  const TextBatch batch = sample_batch(2);
  const auto loss = model->loss(batch.inputs, batch.targets);
  const auto load = model->expert_load();
  REQUIRE(load.size() == 2);
  REQUIRE(load[1].layer == "blocks.1.mixture");
  REQUIRE(model->named_modules()[load[1].layer]);
  REQUIRE(load[1].tokens.sum().item<std::int64_t>() == 16);
  loss.backward();  // Recomputation must not count the tokens again.
  REQUIRE(equal_tensors({model->expert_load()[1].tokens}, {load[1].tokens}));
}

}  // namespace
}  // namespace gradmon
