// SPDX-License-Identifier: Apache-2.0
#include "tests/training/mixture_of_experts.h"

#include <gradmon/observe.h>

#include <ATen/ops/bincount.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/modules/container/modulelist.h>

namespace gradmon {

MixtureOfExperts::MixtureOfExperts(Shape shape)
    : experts_per_token_(shape.experts_per_token),
      router_(register_module("router", torch::nn::Linear(shape.width, shape.experts))) {
  const auto experts = register_module("experts", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < shape.experts; ++i) {
    experts_.push_back(std::make_shared<FeedForward>(shape.width, shape.activation));
    experts->push_back(experts_.back());
  }
}

at::Tensor MixtureOfExperts::forward(const at::Tensor& x) {
  const auto tokens = x.flatten(0, 1);
  const auto [probabilities, chosen] =
      at::topk(at::softmax(observe(*router_)(tokens), -1), experts_per_token_, -1);
  const auto asked = chosen.flatten(), weights = probabilities.flatten();  // tokens · experts_per_token
  tokens_per_expert_ = at::bincount(asked, {}, static_cast<std::int64_t>(experts_.size()));
  at::Tensor mixed = at::zeros_like(tokens);
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    const auto places = at::nonzero(asked == static_cast<std::int64_t>(i)).flatten();
    if (places.numel() == 0) continue;
    const auto of_token = places.div(experts_per_token_, "floor");
    const auto answer = observe(*experts_[i])(tokens.index_select(0, of_token));
    mixed = mixed.index_add(0, of_token, answer * weights.index_select(0, places).unsqueeze(1));
  }
  return mixed.view(x.sizes());
}

}  // namespace gradmon
