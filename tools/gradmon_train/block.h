// SPDX-License-Identifier: Apache-2.0
// One layer of a transformer: attention, then a perceptron or a mixture of
// experts, each added to what it was given a normalised copy of.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/normalization.h>

#include <memory>

#include "tools/gradmon_train/attention.h"
#include "tools/gradmon_train/mixture_of_experts.h"
#include "tools/gradmon_train/transformer_shape.h"

namespace gradmon {

// The perceptron's modules are the block's own (`expand`, `activation`,
// `contract`); the mixture is `mixture`.
class Block : public torch::nn::Module {
 public:
  Block(const TransformerShape& shape, std::int64_t heads);

  // Batch × length × width, to the same: always a new tensor.
  at::Tensor forward(at::Tensor x);

  const MixtureOfExperts* mixture() const { return mixture_.get(); }  // null: a perceptron

 private:
  torch::nn::LayerNorm norm1_;
  std::shared_ptr<Attention> attention_;
  torch::nn::LayerNorm norm2_;
  std::shared_ptr<FeedForward> perceptron_;  // this or the mixture
  std::shared_ptr<MixtureOfExperts> mixture_;
};

}  // namespace gradmon
