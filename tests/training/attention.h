// SPDX-License-Identifier: Apache-2.0
// Causal multi-head self-attention.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>

namespace gradmon {

// Scaled dot-product attention. It has no parameters; it is a module so that its inputs can
// be observed.
class AttentionCore : public torch::nn::Module {
 public:
  // `context`: the longest text, in positions.
  explicit AttentionCore(std::int64_t context);

  // Takes three tensors of batch × length × heads × head width (sa_order "b,s,h,d"); returns
  // batch × length × width.
  at::Tensor forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);

 private:
  const at::Tensor future_;  // context × context; true: a later position, masked
};

class Attention : public torch::nn::Module {
 public:
  // `width` is a multiple of `heads`.
  Attention(std::int64_t width, std::int64_t heads, std::int64_t context);

  // Takes and returns batch × length × width.
  at::Tensor forward(const at::Tensor& x);

 private:
  const std::int64_t heads_;
  torch::nn::Linear query_key_value_;
  std::shared_ptr<AttentionCore> core_;
  torch::nn::Linear projection_;
};

}  // namespace gradmon
