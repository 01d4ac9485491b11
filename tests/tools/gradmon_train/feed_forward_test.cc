// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmon_train/feed_forward.h"

#include <ATen/ops/ones.h>

#include "control/debian_version.h"
#include "tests/tools/gradmon_train/sample_training.h"
#include "tools/gradmon_train/gradient_accumulation.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("activations in place train as those out of place bit for bit") {
  const auto of = [](Activation activation) {
    TransformerShape shape = small_shape();
    shape.activation = activation;
    const auto model = seeded_model(shape);
    auto result = std::vector{accumulate_gradients(*model, {sample_batch(3)}).loss};
    for (auto& gradient : gradients(*model)) result.push_back(gradient);
    return result;
  };
  REQUIRE(same(of(Activation::relu_in_place), of(Activation::relu)));
  REQUIRE_FALSE(same(of(Activation::relu), of(Activation::gelu)));
}

TEST_CASE("only an activation in place overwrites what it is given") {
  const auto after = [](Activation activation) {
    const at::Tensor x = -at::ones({3});
    ActivationFunction(activation).forward(x);
    return x.sum().item<float>();
  };
  REQUIRE(after(Activation::relu_in_place) == 0);
  REQUIRE(after(Activation::relu) == -3);
  REQUIRE(after(Activation::gelu) == -3);
}

}  // namespace
}  // namespace gradmon
