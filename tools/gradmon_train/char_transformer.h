// SPDX-License-Identifier: Apache-2.0
// A small decoder-only transformer over bytes: pre-norm blocks of causal
// self-attention and a two-layer perceptron, as in GPT-2, without dropout.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>

namespace gradmon {

// One thread, as every torch module. Parameters are named as their modules
// are: `blocks.0.attention.query_key_value.weight`, `head.bias`.
class CharTransformer : public torch::nn::Module {
 public:
  static constexpr std::int64_t kHeads = 4;

  struct Shape {
    std::int64_t layers;
    std::int64_t width;  // a multiple of kHeads
    std::int64_t context;
  };

  explicit CharTransformer(Shape shape);

  // Logits, batch × length × 256, of the byte after each of `bytes`: int64,
  // batch × length, length at most the context.
  at::Tensor forward(const at::Tensor& bytes);

  // Mean cross entropy in nats per byte.
  at::Tensor loss(const at::Tensor& bytes, const at::Tensor& next_bytes);

 private:
  torch::nn::Embedding token_embedding_, position_embedding_;
  torch::nn::ModuleList blocks_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear head_;
};

}  // namespace gradmon
