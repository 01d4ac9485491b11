// SPDX-License-Identifier: Apache-2.0
#include "tests/training/sample_training.h"

#include <ATen/ops/randint.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstring>

#include "tests/training/trainable_parameters.h"

namespace gradmon {

TransformerShape small_shape() { return {2, 16, 8}; }

std::shared_ptr<CharTransformer> seeded_model(const TransformerShape& shape) {
  torch::manual_seed(7);
  return std::make_shared<CharTransformer>(shape);
}

TextBatch sample_batch(std::int64_t texts) {
  torch::manual_seed(11);
  return {at::randint(256, {texts, 8}, at::kLong), at::randint(256, {texts, 8}, at::kLong)};
}

std::vector<at::Tensor> gradients(const torch::nn::Module& model) {
  std::vector<at::Tensor> result;
  for (const auto& parameter : distinct_parameters(model)) result.push_back(parameter.value().grad());
  return result;
}

bool equal_tensors(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const at::Tensor& x, const at::Tensor& y) {
    if (!x.defined() || !y.defined()) return x.defined() == y.defined();
    if (x.scalar_type() != y.scalar_type() || x.sizes() != y.sizes()) return false;
    const at::Tensor left = x.contiguous();
    const at::Tensor right = y.contiguous();
    return std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
  });
}

}  // namespace gradmon
