// SPDX-License-Identifier: Apache-2.0
#include "tests/training/attention.h"

#include <gradmon/observe.h>

#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

namespace gradmon {

AttentionCore::AttentionCore(std::int64_t context)
    : future_(at::ones({context, context}, at::kBool).triu(1)) {}

at::Tensor AttentionCore::forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  const auto length = query.size(1);
  const auto by_head = [](const at::Tensor& x) { return x.transpose(1, 2); };
  auto scores = at::matmul(by_head(query), by_head(key).transpose(-2, -1)) /
                std::sqrt(static_cast<double>(query.size(3)));
  scores = scores.masked_fill(future_.slice(0, 0, length).slice(1, 0, length),
                              -std::numeric_limits<double>::infinity());
  return by_head(at::matmul(at::softmax(scores, -1), by_head(value))).flatten(2);
}

Attention::Attention(std::int64_t width, std::int64_t heads, std::int64_t context)
    : heads_(heads),
      query_key_value_(register_module("query_key_value", torch::nn::Linear(width, 3 * width))),
      core_(register_module("core", std::make_shared<AttentionCore>(context))),
      projection_(register_module("projection", torch::nn::Linear(width, width))) {}

at::Tensor Attention::forward(const at::Tensor& x) {
  const auto width = x.size(2);
  const auto parts = observe(*query_key_value_)(x).view({x.size(0), x.size(1), 3, heads_, width / heads_});
  return observe(*projection_)(observe(*core_)(parts.select(2, 0), parts.select(2, 1), parts.select(2, 2)));
}

}  // namespace gradmon
