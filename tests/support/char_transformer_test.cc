// SPDX-License-Identifier: Apache-2.0
// The recomputation on which tests of gradmon rely. training_test.cc has the training as a whole.
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <torch/csrc/autograd/engine.h>
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

}  // namespace
}  // namespace gradmon
