// SPDX-License-Identifier: Apache-2.0
#include "tests/training/feed_forward.h"

#include <ATen/ops/ones.h>

#include "control/debian_version.h"
#include "tests/training/sample_training.h"
#include "tests/training/gradient_accumulation.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("in-place relu gives the same loss and gradients as relu") {
  const auto loss_and_gradients = [](Activation activation) {
    TransformerShape shape = small_shape();
    shape.activation = activation;
    const auto model = seeded_model(shape);
    auto result = std::vector{accumulate_gradients(*model, {sample_batch(3)}).loss};
    for (auto& gradient : gradients(*model)) result.push_back(gradient);
    return result;
  };
  REQUIRE(equal_tensors(loss_and_gradients(Activation::relu_in_place), loss_and_gradients(Activation::relu)));
  REQUIRE_FALSE(equal_tensors(loss_and_gradients(Activation::relu), loss_and_gradients(Activation::gelu)));
}

TEST_CASE("only an in-place activation overwrites its input") {
  const auto input_sum_after = [](Activation activation) {
    const at::Tensor x = -at::ones({3});
    ActivationFunction(activation).forward(x);
    return x.sum().item<float>();
  };
  REQUIRE(input_sum_after(Activation::relu_in_place) == 0);
  REQUIRE(input_sum_after(Activation::relu) == -3);
  REQUIRE(input_sum_after(Activation::gelu) == -3);
}

}  // namespace
}  // namespace gradmon
