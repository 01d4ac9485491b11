// SPDX-License-Identifier: Apache-2.0
#include "tests/support/char_transformer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/max.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>
#include <gradmon/observe.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/nn/modules/container/modulelist.h>

#include <cmath>
#include <limits>
#include <utility>

#include "hooks/observe/graph_node.h"

namespace gradmon {
namespace {

constexpr std::int64_t kBytes = 256;

torch::nn::LayerNorm norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

// Scaled dot-product attention. It has no parameters; it is a module so that its inputs can
// be observed.
class AttentionCore : public torch::nn::Module {
 public:
  // `context`: the longest text, in positions.
  explicit AttentionCore(std::int64_t context) : future_(at::ones({context, context}, at::kBool).triu(1)) {}

  // Takes three tensors of batch × length × heads × head width (sa_order "b,s,h,d"); returns
  // batch × length × width.
  at::Tensor forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
    const auto length = query.size(1);
    const auto by_head = [](const at::Tensor& x) { return x.transpose(1, 2); };
    auto scores = at::matmul(by_head(query), by_head(key).transpose(-2, -1)) /
                  std::sqrt(static_cast<double>(query.size(3)));
    scores = scores.masked_fill(future_.slice(0, 0, length).slice(1, 0, length),
                                -std::numeric_limits<double>::infinity());
    return by_head(at::matmul(at::softmax(scores, -1), by_head(value))).flatten(2);
  }

 private:
  const at::Tensor future_;  // context × context; true: a later position, masked
};

// Causal multi-head self-attention. Takes and returns batch × length × width.
class Attention : public torch::nn::Module {
 public:
  Attention(std::int64_t width, std::int64_t heads, std::int64_t context)
      : heads_(heads),
        query_key_value_(register_module("query_key_value", torch::nn::Linear(width, 3 * width))),
        core_(register_module("core", std::make_shared<AttentionCore>(context))),
        projection_(register_module("projection", torch::nn::Linear(width, width))) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto width = x.size(2);
    const auto parts = observe(*query_key_value_)(x).view({x.size(0), x.size(1), 3, heads_, width / heads_});
    return observe(*projection_)(observe(*core_)(parts.select(2, 0), parts.select(2, 1), parts.select(2, 2)));
  }

 private:
  const std::int64_t heads_;  // `width` is a multiple of it
  torch::nn::Linear query_key_value_;
  std::shared_ptr<AttentionCore> core_;
  torch::nn::Linear projection_;
};

using Segment = std::function<at::Tensor(const at::Tensor&)>;

class Recomputation : public torch::autograd::Node {
 public:
  Recomputation(Segment segment, const at::Tensor& x)
      : Node(torch::autograd::collect_next_edges(x)), segment_(std::move(segment)), x_(x, false) {}

  std::string name() const override { return "gradmon::Recomputation"; }
  void release_variables() override { x_.reset_data(); }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    const at::AutoGradMode again(true);
    at::Tensor x = x_.unpack();
    x = x.detach().requires_grad_(x.requires_grad());
    const at::Tensor output = segment_(x);
    if (output.requires_grad()) torch::autograd::backward({output}, {std::move(gradients[0])});
    return {x.grad()};
  }

  const Segment segment_;
  torch::autograd::SavedVariable x_;
};

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

at::Tensor ActivationFunction::forward(at::Tensor x) {
  return activation_ == Activation::gelu ? at::gelu(x) : at::relu_(x);
}

FeedForward::FeedForward(std::int64_t width, Activation activation)
    : expand_(register_module("expand", torch::nn::Linear(width, 4 * width))),
      activation_(register_module("activation", std::make_shared<ActivationFunction>(activation))),
      contract_(register_module("contract", torch::nn::Linear(4 * width, width))) {}

at::Tensor FeedForward::forward(const at::Tensor& x) {
  return observe(*contract_)(observe(*activation_)(observe(*expand_)(x)));
}

MixtureOfExperts::MixtureOfExperts(std::int64_t width, std::int64_t experts, Activation activation)
    : router_(register_module("router", torch::nn::Linear(width, experts))) {
  const auto list = register_module("experts", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < experts; ++i) {
    experts_.push_back(std::make_shared<FeedForward>(width, activation));
    list->push_back(experts_.back());
  }
}

at::Tensor MixtureOfExperts::forward(const at::Tensor& x) {
  const auto tokens = x.flatten(0, 1);
  const auto [probabilities, chosen] = at::max(at::softmax(observe(*router_)(tokens), -1), -1);
  tokens_per_expert_ = at::bincount(chosen, {}, static_cast<std::int64_t>(experts_.size()));
  at::Tensor mixed = at::zeros_like(tokens);
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    const auto own = at::nonzero(chosen == static_cast<std::int64_t>(i)).flatten();
    if (own.numel() == 0) continue;
    const auto answer = observe(*experts_[i])(tokens.index_select(0, own));
    mixed = mixed.index_add(0, own, answer * probabilities.index_select(0, own).unsqueeze(1));
  }
  return mixed.view(x.sizes());
}

at::Tensor checkpoint(Segment segment, const at::Tensor& x) {
  at::Tensor output;
  {
    const at::NoGradGuard no_graph;
    output = segment(x);
  }
  if (!at::GradMode::is_enabled()) return output;
  torch::autograd::create_gradient_edge(output, make_node<Recomputation>(std::move(segment), x));
  return output;
}

// A pre-norm layer with residual connections. The perceptron's modules are its direct children (`expand`,
// `activation`, `contract`); the mixture is the child `mixture`.
class CharTransformer::Block : public torch::nn::Module {
 public:
  explicit Block(const Shape& shape)
      : norm1_(register_module("norm1", norm(shape.width))),
        attention_(
            register_module("attention", std::make_shared<Attention>(shape.width, kHeads, shape.context))),
        norm2_(register_module("norm2", norm(shape.width))) {
    if (shape.experts == 0) {
      perceptron_ = std::make_shared<FeedForward>(shape.width, shape.activation);
      for (const auto& part : perceptron_->named_children()) register_module(part.key(), part.value());
    } else {
      mixture_ = register_module(
          "mixture", std::make_shared<MixtureOfExperts>(shape.width, shape.experts, shape.activation));
    }
  }

  // Takes and returns batch × length × width; the result is always a new tensor.
  at::Tensor forward(at::Tensor x) {
    x = x + observe(*attention_)(observe(*norm1_)(x));
    const auto normalised = observe(*norm2_)(x);
    return x + (mixture_ ? observe(*mixture_)(normalised) : perceptron_->forward(normalised));
  }

  const MixtureOfExperts* mixture() const { return mixture_.get(); }  // null: a perceptron

 private:
  torch::nn::LayerNorm norm1_;
  std::shared_ptr<Attention> attention_;
  torch::nn::LayerNorm norm2_;
  std::shared_ptr<FeedForward> perceptron_;  // null if there is a mixture
  std::shared_ptr<MixtureOfExperts> mixture_;
};

CharTransformer::CharTransformer(Shape shape)
    : block_values_(shape.block_values),
      token_embedding_(register_module("token_embedding", torch::nn::Embedding(kBytes, shape.width))),
      position_embedding_(
          register_module("position_embedding", torch::nn::Embedding(shape.context, shape.width))),
      norm_(nullptr),
      head_(nullptr) {
  const auto blocks = register_module("blocks", torch::nn::ModuleList());
  norm_ = register_module("norm", norm(shape.width));
  head_ = register_module("head", make_head(shape, token_embedding_->weight));
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    blocks_.push_back(std::make_shared<Block>(shape));
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
