// SPDX-License-Identifier: Apache-2.0
#include "tests/training/feed_forward.h"

#include <gradmon/observe.h>

#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>

namespace gradmon {

at::Tensor ActivationFunction::forward(at::Tensor x) {
  if (activation_ == Activation::gelu) return at::gelu(x);
  return activation_ == Activation::relu ? at::relu(x) : at::relu_(x);
}

FeedForward::FeedForward(std::int64_t width, Activation activation)
    : expand_(register_module("expand", torch::nn::Linear(width, 4 * width))),
      activation_(register_module("activation", std::make_shared<ActivationFunction>(activation))),
      contract_(register_module("contract", torch::nn::Linear(4 * width, width))) {}

at::Tensor FeedForward::forward(const at::Tensor& x) {
  return observe(*contract_)(observe(*activation_)(observe(*expand_)(x)));
}

}  // namespace gradmon
