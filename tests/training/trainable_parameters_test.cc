// SPDX-License-Identifier: Apache-2.0
#include "tests/training/trainable_parameters.h"

#include <torch/optim/adamw.h>

#include "control/debian_version.h"
#include "tests/training/sample_training.h"
#include "tests/training/gradient_accumulation.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("a shared weight is one parameter under the first of its names") {
  TransformerShape shape = small_shape();
  const auto apart = distinct_parameters(*seeded_model(shape));
  shape.head_weight = HeadWeight::token_embedding;
  const auto model = seeded_model(shape);
  const auto shared = distinct_parameters(*model);
  REQUIRE(shared.size() + 1 == apart.size());
  REQUIRE(apart.contains("head.weight"));
  REQUIRE_FALSE(shared.contains("head.weight"));
  REQUIRE(shared.contains("token_embedding.weight"));
  const auto listed = model->named_parameters();
  REQUIRE(listed["head.weight"].is_same(listed["token_embedding.weight"]));
  accumulate_gradients(*model, {sample_batch(1)});
  // Every row has a gradient: the head uses the rows of bytes that the text lacks.
  REQUIRE(shared["token_embedding.weight"].grad().abs().sum(1).gt(0).all().item<bool>());
}

TEST_CASE("training changes every parameter except frozen ones") {
  const auto model = seeded_model(small_shape());
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

TEST_CASE("freeze refuses a pattern without a match and patterns that match every parameter") {
  const auto model = seeded_model(small_shape());
  REQUIRE_THROWS_AS(freeze(*model, {"nrom"}), std::invalid_argument);
  REQUIRE_THROWS_AS(freeze(*model, {"embedding", "blocks", "norm", "head"}), std::invalid_argument);
}

}  // namespace
}  // namespace gradmon
