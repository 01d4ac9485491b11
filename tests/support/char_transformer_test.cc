// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/allclose.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstring>

#include "tests/support/catch.h"
#include "tests/support/training_step.h"

namespace gradmon {
namespace {

constexpr TransformerShape kSmall{2, 16, 8};

std::shared_ptr<CharTransformer> seeded_model(const TransformerShape& shape) {
  torch::manual_seed(7);
  return std::make_shared<CharTransformer>(shape);
}

// `texts` rows of eight random bytes; the targets are random too.
TextBatch sample_batch(std::int64_t texts) {
  torch::manual_seed(11);
  return {at::randint(256, {texts, 8}, at::kLong), at::randint(256, {texts, 8}, at::kLong)};
}

// The gradient of each distinct parameter, in the model's order; undefined if the parameter has none.
std::vector<at::Tensor> gradients(const torch::nn::Module& model) {
  std::vector<at::Tensor> result;
  for (const auto& parameter : distinct_parameters(model)) result.push_back(parameter.value().grad());
  return result;
}

// True if the tensors of each pair are bit for bit equal, or both undefined.
bool equal_tensors(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const at::Tensor& x, const at::Tensor& y) {
    if (!x.defined() || !y.defined()) return x.defined() == y.defined();
    if (x.scalar_type() != y.scalar_type() || x.sizes() != y.sizes()) return false;
    const at::Tensor left = x.contiguous(), right = y.contiguous();
    return std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
  });
}

// --- Checkpoints.

std::vector<at::Tensor> loss_and_gradients(TransformerShape shape, BlockValues values,
                                           const std::vector<std::string>& frozen) {
  shape.block_values = values;
  const auto model = seeded_model(shape);
  freeze(*model, frozen);
  std::vector<at::Tensor> result{accumulate_gradients(*model, {sample_batch(3), sample_batch(2)}).loss};
  for (const at::Tensor& gradient : gradients(*model)) result.push_back(gradient);
  return result;
}

TEST_CASE("recomputed blocks give the same gradients as kept blocks") {
  TransformerShape shape = kSmall;
  std::vector<std::string> frozen;
  SECTION("with a perceptron") {}
  SECTION("with in-place activations") { shape.activation = Activation::relu_in_place; }
  SECTION("with a mixture of experts") { shape.experts = 5; }
  SECTION("with a shared weight") { shape.head_weight = HeadWeight::token_embedding; }
  SECTION("where the first block's input needs no gradient") { frozen = {"embedding"}; }
  SECTION("where a whole block is frozen") { frozen = {"embedding", "blocks.0."}; }
  REQUIRE(equal_tensors(loss_and_gradients(shape, BlockValues::kept, frozen),
                        loss_and_gradients(shape, BlockValues::recomputed, frozen)));
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

TEST_CASE("only an in-place activation overwrites its input") {
  const auto input_sum_after = [](Activation activation) {
    const at::Tensor x = -at::ones({3});
    ActivationFunction(activation).forward(x);
    return x.sum().item<float>();
  };
  REQUIRE(input_sum_after(Activation::relu_in_place) == 0);
  REQUIRE(input_sum_after(Activation::gelu) == -3);
}

// --- The mixture of experts.

constexpr std::int64_t kExperts = 6;

// The output of `model`, computed token by token.
at::Tensor reference(const MixtureOfExperts& model, const at::Tensor& x) {
  const auto p = model.named_parameters();
  const auto tokens = x.flatten(0, 1);
  const auto result = at::zeros_like(tokens);
  for (std::int64_t token = 0; token < tokens.size(0); ++token) {
    const auto probabilities =
        at::softmax(at::linear(tokens[token], p["router.weight"], p["router.bias"]), -1);
    const auto expert = probabilities.argmax().item<std::int64_t>();
    const auto name = "experts." + std::to_string(expert);
    const auto wide =
        at::gelu(at::linear(tokens[token], p[name + ".expand.weight"], p[name + ".expand.bias"]));
    const auto answer = at::linear(wide, p[name + ".contract.weight"], p[name + ".contract.bias"]);
    result[token] += probabilities[expert] * answer;
  }
  return result.view(x.sizes());
}

TEST_CASE("a token's output is its expert's output weighted by the router") {
  torch::manual_seed(5);
  MixtureOfExperts model(4, kExperts, Activation::gelu);
  const auto x = at::randn({3, 5, 4});
  const at::NoGradGuard no_graph;
  REQUIRE(at::allclose(model.forward(x), reference(model, x), 1e-5, 1e-6));
  REQUIRE(model.tokens_per_expert().numel() == kExperts);
  REQUIRE(model.tokens_per_expert().sum().item<std::int64_t>() == 15);
}

TEST_CASE("only the router and the experts with tokens get gradients") {
  torch::manual_seed(5);
  MixtureOfExperts model(4, kExperts, Activation::gelu);
  model.forward(at::randn({1, 3, 4})).sum().backward();
  const auto tokens = model.tokens_per_expert();
  int without = 0;
  for (std::int64_t i = 0; i < kExperts; ++i) {
    const bool asked = tokens[i].item<std::int64_t>() != 0;
    const auto name = "experts." + std::to_string(i);
    REQUIRE(model.named_parameters()[name + ".expand.weight"].grad().defined() == asked);
    REQUIRE(model.named_parameters()[name + ".contract.bias"].grad().defined() == asked);
    if (!asked) without += 1;
  }
  REQUIRE(without >= 3);
  REQUIRE(model.named_parameters()["router.weight"].grad().abs().sum().item<float>() > 0);
}

TEST_CASE("the expert load names the mixture and does not count recomputation") {
  TransformerShape shape = kSmall;
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

// --- Micro batches and parameters.

TEST_CASE("four micro batches give the same result as one whole batch up to rounding") {
  TransformerShape shape = kSmall;
  shape.experts = GENERATE(0, 4);
  const auto model = seeded_model(shape);
  const TextBatch batch = sample_batch(8);
  const auto at_once = accumulate_gradients(*model, {batch});
  const auto expected = gradients(*model);
  unset_gradients(trainable_parameters(*model));
  std::vector<TextBatch> parts;
  for (std::size_t i = 0; i < 4; ++i) parts.push_back({batch.inputs.chunk(4)[i], batch.targets.chunk(4)[i]});
  const auto in_four = accumulate_gradients(*model, parts);
  REQUIRE(at::allclose(in_four.loss, at_once.loss, 1e-5, 1e-7));
  const auto found = gradients(*model);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    REQUIRE(found[i].defined() == expected[i].defined());
    if (found[i].defined()) REQUIRE(at::allclose(found[i], expected[i], 1e-4, 1e-6));
  }
  REQUIRE(in_four.expert_load.size() == at_once.expert_load.size());
  for (std::size_t i = 0; i < at_once.expert_load.size(); ++i)
    REQUIRE(equal_tensors({in_four.expert_load[i].tokens}, {at_once.expert_load[i].tokens}));
}

TEST_CASE("an unset gradient is undefined until the next backward") {
  const auto model = seeded_model(kSmall);
  const auto parameters = trainable_parameters(*model);
  accumulate_gradients(*model, {sample_batch(1)});
  const auto first = gradients(*model);
  unset_gradients(parameters);
  REQUIRE_FALSE(parameters.front().grad().defined());
  accumulate_gradients(*model, {sample_batch(1)});
  REQUIRE(equal_tensors(gradients(*model), first));
}

TEST_CASE("a shared weight is one parameter under the first of its names") {
  TransformerShape shape = kSmall;
  const auto apart = distinct_parameters(*seeded_model(shape));
  shape.head_weight = HeadWeight::token_embedding;
  const auto model = seeded_model(shape);
  const auto shared = distinct_parameters(*model);
  REQUIRE(shared.size() + 1 == apart.size());
  REQUIRE(apart.contains("head.weight"));
  REQUIRE_FALSE(shared.contains("head.weight"));
  const auto listed = model->named_parameters();
  REQUIRE(listed["head.weight"].is_same(listed["token_embedding.weight"]));
  accumulate_gradients(*model, {sample_batch(1)});
  // Every row has a gradient: the head uses the rows of bytes that the text lacks.
  REQUIRE(shared["token_embedding.weight"].grad().abs().sum(1).gt(0).all().item<bool>());
}

TEST_CASE("training changes every parameter except frozen ones") {
  const auto model = seeded_model(kSmall);
  freeze(*model, {"norm", "blocks.1.attention."});
  std::vector<at::Tensor> before;
  for (const auto& p : distinct_parameters(*model)) before.push_back(p.value().detach().clone());
  const auto parameters = trainable_parameters(*model);
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(0.1));
  for (int i = 0; i < 2; ++i) {
    unset_gradients(parameters);
    accumulate_gradients(*model, {sample_batch(2)});
    optimizer.step();
  }
  auto old = before.begin();
  for (const auto& p : distinct_parameters(*model)) {
    CAPTURE(p.key());
    const bool frozen =
        p.key().find("norm") != std::string::npos || p.key().find("blocks.1.attention.") != std::string::npos;
    REQUIRE(p.value().equal(*old++) == frozen);
    REQUIRE(p.value().grad().defined() == !frozen);
  }
}

}  // namespace
}  // namespace gradmon
