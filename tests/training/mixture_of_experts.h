// SPDX-License-Identifier: Apache-2.0
// A mixture of experts: a router sends each token to one or two of several perceptrons.
// Switch Transformers, https://arxiv.org/abs/2101.03961, equations 1 and 2, without the
// load-balancing loss, so that an expert may get no tokens.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/training/feed_forward.h"

namespace gradmon {

// The modules are `router`, whose output is the logits (tokens × experts), and `experts.0`,
// `experts.1`, …. An expert without tokens is not called in that forward, so its parameters
// get no gradient from it.
class MixtureOfExperts : public torch::nn::Module {
 public:
  struct Shape {
    std::int64_t width;
    std::int64_t experts;
    std::int64_t experts_per_token;  // 1 … experts
    Activation activation;
  };

  explicit MixtureOfExperts(Shape shape);

  // Takes and returns batch × length × width.
  at::Tensor forward(const at::Tensor& x);

  // Of the last forward: int64, one count per expert. A forward repeated in the backward gives
  // the same counts. Undefined before the first forward.
  const at::Tensor& tokens_per_expert() const { return tokens_per_expert_; }

 private:
  const std::int64_t experts_per_token_;
  torch::nn::Linear router_;
  std::vector<std::shared_ptr<FeedForward>> experts_;
  at::Tensor tokens_per_expert_;
};

}  // namespace gradmon
