// SPDX-License-Identifier: Apache-2.0
// A perceptron of two layers; the hidden layer is four times as wide.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>

#include "tests/training/transformer_shape.h"

namespace gradmon {

class ActivationFunction : public torch::nn::Module {
 public:
  explicit ActivationFunction(Activation activation) : activation_(activation) {}

  // relu_in_place: overwrites `x`.
  at::Tensor forward(at::Tensor x);

 private:
  const Activation activation_;
};

class FeedForward : public torch::nn::Module {
 public:
  FeedForward(std::int64_t width, Activation activation);

  // Takes and returns any shape that ends in `width`.
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Linear expand_;
  std::shared_ptr<ActivationFunction> activation_;
  torch::nn::Linear contract_;
};

}  // namespace gradmon
