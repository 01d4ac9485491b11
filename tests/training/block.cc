// SPDX-License-Identifier: Apache-2.0
#include "tests/training/block.h"

#include <gradmon/observe.h>

namespace gradmon {
namespace {

torch::nn::LayerNorm norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

}  // namespace

Block::Block(const TransformerShape& shape, std::int64_t heads)
    : norm1_(register_module("norm1", norm(shape.width))),
      attention_(
          register_module("attention", std::make_shared<Attention>(shape.width, heads, shape.context))),
      norm2_(register_module("norm2", norm(shape.width))) {
  if (shape.experts == 0) {
    perceptron_ = std::make_shared<FeedForward>(shape.width, shape.activation);
    for (const auto& part : perceptron_->named_children()) register_module(part.key(), part.value());
  } else {
    mixture_ = register_module("mixture",
                               std::make_shared<MixtureOfExperts>(MixtureOfExperts::Shape{
                                   shape.width, shape.experts, shape.experts_per_token, shape.activation}));
  }
}

at::Tensor Block::forward(at::Tensor x) {
  x = x + observe(*attention_)(observe(*norm1_)(x));
  const auto normalised = observe(*norm2_)(x);
  return x + (mixture_ ? observe(*mixture_)(normalised) : perceptron_->forward(normalised));
}

}  // namespace gradmon
