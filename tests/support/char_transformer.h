// SPDX-License-Identifier: Apache-2.0
// A small decoder-only transformer over bytes, as in GPT-2 without dropout: pre-norm blocks of causal
// self-attention and a two-layer perceptron, or a mixture of experts in its place.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gradmon {

enum class Activation { gelu, relu_in_place };
// The activations in a block: kept from forward to backward, or recomputed in the backward.
enum class BlockValues { kept, recomputed };
enum class HeadWeight { own, token_embedding };

struct TransformerShape {
  std::int64_t layers;
  std::int64_t width;        // a multiple of CharTransformer::kHeads
  std::int64_t context;      // longest text in bytes
  std::int64_t experts = 0;  // 0: a perceptron in each block, not a mixture
  Activation activation = Activation::gelu;
  BlockValues block_values = BlockValues::kept;
  HeadWeight head_weight = HeadWeight::own;
};

// The number of tokens of each expert of one layer: int64, one count per expert.
struct ExpertLoad {
  std::string layer;  // the mixture's name: `blocks.0.mixture`
  at::Tensor tokens;
};

class ActivationFunction : public torch::nn::Module {
 public:
  explicit ActivationFunction(Activation activation) : activation_(activation) {}

  // relu_in_place: overwrites `x`.
  at::Tensor forward(at::Tensor x);

 private:
  const Activation activation_;
};

// A perceptron of two layers; the hidden layer is four times as wide.
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

// A mixture of experts: a router sends each token to one of several perceptrons. Switch Transformers,
// https://arxiv.org/abs/2101.03961, equations 1 and 2, without the load-balancing loss. The modules are
// `router`, whose output is the logits (tokens × experts), and `experts.0`, `experts.1`, …. An expert without
// tokens is not called in that forward, so its parameters get no gradient from it.
class MixtureOfExperts : public torch::nn::Module {
 public:
  MixtureOfExperts(std::int64_t width, std::int64_t experts, Activation activation);

  // Takes and returns batch × length × width.
  at::Tensor forward(const at::Tensor& x);

  // Of the last forward: int64, one count per expert. A forward repeated in the backward gives
  // the same counts. Undefined before the first forward.
  const at::Tensor& tokens_per_expert() const { return tokens_per_expert_; }

 private:
  torch::nn::Linear router_;
  std::vector<std::shared_ptr<FeedForward>> experts_;
  at::Tensor tokens_per_expert_;
};

// Reentrant activation checkpointing, which takes less memory and more time; libtorch has it in Python only.
// Returns segment(x), and keeps only `x` of its graph. The backward runs `segment` again and
// an inner backward through it, in which the parameters of `segment` get their gradients.
// `x` must not change before that.
//
// `segment` must return an equal new tensor at each call (so it draws no random numbers),
// and what it refers to must live as long as the graph. The gradients are bit for bit those
// of segment(x), whether `x` requires a gradient or not. Works with backward(), not with
// autograd::grad: the inner backward accumulates into leaves.
at::Tensor checkpoint(std::function<at::Tensor(const at::Tensor&)> segment, const at::Tensor& x);

// One thread, like every torch module. Parameter names follow the modules:
// `blocks.0.attention.query_key_value.weight`, `blocks.0.expand.bias`, `head.bias`. A weight shared with the
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
  class Block;

  const BlockValues block_values_;
  torch::nn::Embedding token_embedding_, position_embedding_;
  std::vector<std::shared_ptr<Block>> blocks_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear head_;
};

}  // namespace gradmon
