// SPDX-License-Identifier: Apache-2.0
// One pre-norm layer of a transformer: attention, then a perceptron or a mixture of experts,
// each with a residual connection.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/normalization.h>

#include <memory>

#include "tests/training/attention.h"
#include "tests/training/mixture_of_experts.h"
#include "tests/training/transformer_shape.h"

namespace gradmon {

// The perceptron's modules are direct children of the block (`expand`, `activation`,
// `contract`); the mixture is the child `mixture`.
class Block : public torch::nn::Module {
 public:
  Block(const TransformerShape& shape, std::int64_t heads);

  // Takes and returns batch × length × width; the result is always a new tensor.
  at::Tensor forward(at::Tensor x);

  const MixtureOfExperts* mixture() const { return mixture_.get(); }  // null: a perceptron

 private:
  torch::nn::LayerNorm norm1_;
  std::shared_ptr<Attention> attention_;
  torch::nn::LayerNorm norm2_;
  std::shared_ptr<FeedForward> perceptron_;  // null if there is a mixture
  std::shared_ptr<MixtureOfExperts> mixture_;
};

}  // namespace gradmon
