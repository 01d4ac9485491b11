// SPDX-License-Identifier: Apache-2.0
// Several perceptrons of which each token asks one or two, as a router says:
// Switch Transformers, https://arxiv.org/abs/2101.03961, equations 1 and 2,
// without its loss for balance, so that experts may stay without tokens.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/gradmon_train/feed_forward.h"

namespace gradmon {

// Its modules are `router`, whose output are the logits, tokens × experts, and
// `experts.0`, `experts.1`, …. An expert without tokens takes no part in that
// forward: its parameters get no gradient by it.
class MixtureOfExperts : public torch::nn::Module {
 public:
  struct Shape {
    std::int64_t width;
    std::int64_t experts;
    std::int64_t experts_per_token;  // 1 … experts
    Activation activation;
  };

  explicit MixtureOfExperts(Shape shape);

  // Batch × length × width, to the same.
  at::Tensor forward(const at::Tensor& x);

  // Of the last forward (computed again in a backward, it is the same one): int64,
  // one count per expert. Undefined before the first.
  const at::Tensor& tokens_per_expert() const { return tokens_per_expert_; }

 private:
  const std::int64_t experts_per_token_;
  torch::nn::Linear router_;
  std::vector<std::shared_ptr<FeedForward>> experts_;
  at::Tensor tokens_per_expert_;
};

}  // namespace gradmon
