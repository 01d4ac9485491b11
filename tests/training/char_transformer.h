// SPDX-License-Identifier: Apache-2.0
// A small decoder-only transformer over bytes: pre-norm blocks of causal
// self-attention and a two-layer perceptron, as in GPT-2, without dropout.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/training/block.h"
#include "tests/training/transformer_shape.h"

namespace gradmon {

// The number of tokens of each expert of one layer: int64, one count per expert.
struct ExpertLoad {
  std::string layer;  // the mixture's name: `blocks.0.mixture`
  at::Tensor tokens;
};

// One thread, like every torch module. Parameter names follow the modules:
// `blocks.0.attention.query_key_value.weight`, `head.bias`. A weight shared with the
// embedding is listed under both names, as libtorch does.
class CharTransformer : public torch::nn::Module {
 public:
  static constexpr std::int64_t kHeads = 4;

  using Shape = TransformerShape;

  explicit CharTransformer(Shape shape);

  // `bytes`: int64, batch × length, length at most the context. Returns the logits of the
  // byte after each byte: batch × length × 256.
  at::Tensor forward(const at::Tensor& bytes);

  // Mean cross entropy in nats per byte.
  at::Tensor loss(const at::Tensor& bytes, const at::Tensor& next_bytes);

  // The counts of the last forward; empty if there are no experts.
  std::vector<ExpertLoad> expert_load() const;

 private:
  const BlockValues block_values_;
  torch::nn::Embedding token_embedding_, position_embedding_;
  std::vector<std::shared_ptr<Block>> blocks_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear head_;
};

}  // namespace gradmon
