// SPDX-License-Identifier: Apache-2.0
// Causal self-attention of several heads.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>

namespace gradmon {

// What mixes the values of a text by queries and keys; without parameters, and
// a module so that its inputs can be observed.
class AttentionCore : public torch::nn::Module {
 public:
  // Texts of at most `context` positions.
  explicit AttentionCore(std::int64_t context);

  // Three tensors, batch × length × heads × head width (sa_order "b,s,h,d"),
  // to batch × length × width.
  at::Tensor forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);

 private:
  const at::Tensor future_;  // context × context: what a position must not see
};

class Attention : public torch::nn::Module {
 public:
  // `width` is a multiple of `heads`.
  Attention(std::int64_t width, std::int64_t heads, std::int64_t context);

  // Batch × length × width, to the same.
  at::Tensor forward(const at::Tensor& x);

 private:
  const std::int64_t heads_;
  torch::nn::Linear query_key_value_;
  std::shared_ptr<AttentionCore> core_;
  torch::nn::Linear projection_;
};

}  // namespace gradmon
