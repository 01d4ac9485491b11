// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmon_train/char_transformer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

namespace gradmon {
namespace {

constexpr std::int64_t kBytes = 256;

class Attention : public torch::nn::Module {
 public:
  Attention(std::int64_t width, std::int64_t context)
      : query_key_value_(register_module("query_key_value", torch::nn::Linear(width, 3 * width))),
        projection_(register_module("projection", torch::nn::Linear(width, width))),
        future_(at::ones({context, context}, at::kBool).triu(1)) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto batch = x.size(0), length = x.size(1), width = x.size(2);
    const auto head = width / CharTransformer::kHeads;
    // 3 × batch × heads × length × head
    const auto parts =
        query_key_value_(x).view({batch, length, 3, CharTransformer::kHeads, head}).permute({2, 0, 3, 1, 4});
    auto scores = at::matmul(parts[0], parts[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(head));
    scores = scores.masked_fill(future_.slice(0, 0, length).slice(1, 0, length),
                                -std::numeric_limits<double>::infinity());
    const auto mixed = at::matmul(at::softmax(scores, -1), parts[2]);
    return projection_(mixed.transpose(1, 2).reshape({batch, length, width}));
  }

 private:
  torch::nn::Linear query_key_value_, projection_;
  const at::Tensor future_;  // length × length: what a position must not see
};

class Block : public torch::nn::Module {
 public:
  Block(std::int64_t width, std::int64_t context)
      : norm1_(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        attention_(register_module("attention", std::make_shared<Attention>(width, context))),
        norm2_(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        expand_(register_module("expand", torch::nn::Linear(width, 4 * width))),
        contract_(register_module("contract", torch::nn::Linear(4 * width, width))) {}

  at::Tensor forward(at::Tensor x) {
    x = x + attention_->forward(norm1_(x));
    return x + contract_(at::gelu(expand_(norm2_(x))));
  }

 private:
  torch::nn::LayerNorm norm1_;
  std::shared_ptr<Attention> attention_;
  torch::nn::LayerNorm norm2_;
  torch::nn::Linear expand_, contract_;
};

}  // namespace

CharTransformer::CharTransformer(Shape shape)
    : token_embedding_(register_module("token_embedding", torch::nn::Embedding(kBytes, shape.width))),
      position_embedding_(
          register_module("position_embedding", torch::nn::Embedding(shape.context, shape.width))),
      blocks_(register_module("blocks", torch::nn::ModuleList())),
      norm_(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({shape.width})))),
      head_(register_module("head", torch::nn::Linear(shape.width, kBytes))) {
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    blocks_->push_back(std::make_shared<Block>(shape.width, shape.context));
  }
}

at::Tensor CharTransformer::forward(const at::Tensor& bytes) {
  at::Tensor x = token_embedding_(bytes) + position_embedding_(at::arange(bytes.size(1), at::kLong));
  for (const auto& block : *blocks_) x = block->as<Block>()->forward(x);
  return head_(norm_(x));
}

at::Tensor CharTransformer::loss(const at::Tensor& bytes, const at::Tensor& next_bytes) {
  return at::cross_entropy_loss(forward(bytes).view({-1, kBytes}), next_bytes.view({-1}));
}

}  // namespace gradmon
