// SPDX-License-Identifier: Apache-2.0
#include "tests/training/char_transformer.h"

#include <gradmon/observe.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <torch/nn/modules/container/modulelist.h>

#include <cmath>

#include "tests/training/checkpoint.h"

namespace gradmon {
namespace {

constexpr std::int64_t kBytes = 256;

// A linear layer that uses the weight of another module.
class SharingLinear : public torch::nn::LinearImpl {
 public:
  SharingLinear(std::int64_t inputs, std::int64_t outputs, const at::Tensor& shared)
      : LinearImpl(inputs, outputs) {
    parameters_["weight"] = weight = shared;
  }
};

torch::nn::Linear make_head(const TransformerShape& shape, const at::Tensor& embedding) {
  if (shape.head_weight == HeadWeight::own) return torch::nn::Linear(shape.width, kBytes);
  {
    const at::NoGradGuard no_graph;  // Embedding values are too large for a head.
    embedding.div_(std::sqrt(static_cast<double>(shape.width)));
  }
  const std::shared_ptr<torch::nn::LinearImpl> head =
      std::make_shared<SharingLinear>(shape.width, kBytes, embedding);
  return torch::nn::Linear(head);
}

}  // namespace

CharTransformer::CharTransformer(Shape shape)
    : block_values_(shape.block_values),
      token_embedding_(register_module("token_embedding", torch::nn::Embedding(kBytes, shape.width))),
      position_embedding_(
          register_module("position_embedding", torch::nn::Embedding(shape.context, shape.width))),
      norm_(nullptr),
      head_(nullptr) {
  const auto blocks = register_module("blocks", torch::nn::ModuleList());
  norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({shape.width})));
  head_ = register_module("head", make_head(shape, token_embedding_->weight));
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    blocks_.push_back(std::make_shared<Block>(shape, kHeads));
    blocks->push_back(blocks_.back());
  }
}

at::Tensor CharTransformer::forward(const at::Tensor& bytes) {
  at::Tensor x =
      observe(*token_embedding_)(bytes) + observe(*position_embedding_)(at::arange(bytes.size(1), at::kLong));
  for (const auto& block : blocks_) {
    const auto through = [block = block.get()](const at::Tensor& values) { return observe(*block)(values); };
    x = block_values_ == BlockValues::kept ? through(x) : checkpoint(through, x);
  }
  return observe(*head_)(observe(*norm_)(x));
}

at::Tensor CharTransformer::loss(const at::Tensor& bytes, const at::Tensor& next_bytes) {
  return at::cross_entropy_loss(observe(*this)(bytes).view({-1, kBytes}), next_bytes.view({-1}));
}

std::vector<ExpertLoad> CharTransformer::expert_load() const {
  std::vector<ExpertLoad> result;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (const auto* mixture = blocks_[i]->mixture()) {
      result.push_back({"blocks." + std::to_string(i) + ".mixture", mixture->tokens_per_expert()});
    }
  }
  return result;
}

}  // namespace gradmon
