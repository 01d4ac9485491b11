// SPDX-License-Identifier: Apache-2.0
#include "tests/training/trainable_parameters.h"

#include <set>
#include <stdexcept>

namespace gradmon {

torch::OrderedDict<std::string, at::Tensor> distinct_parameters(const torch::nn::Module& model) {
  torch::OrderedDict<std::string, at::Tensor> result;
  std::set<const at::TensorImpl*> seen;
  for (const auto& parameter : model.named_parameters()) {
    if (seen.insert(parameter.value().unsafeGetTensorImpl()).second) {
      result.insert(parameter.key(), parameter.value());
    }
  }
  return result;
}

void freeze(const torch::nn::Module& model, const std::vector<std::string>& patterns) {
  for (const auto& pattern : patterns) {
    bool found = false;
    for (auto& parameter : model.named_parameters()) {
      if (parameter.key().find(pattern) == std::string::npos) continue;
      parameter.value().set_requires_grad(false);
      found = true;
    }
    if (!found) throw std::invalid_argument("--freeze " + pattern + ": no parameter's name contains it");
  }
  if (trainable_parameters(model).empty()) {
    throw std::invalid_argument("--freeze leaves no parameter to train");
  }
}

std::vector<at::Tensor> trainable_parameters(const torch::nn::Module& model) {
  std::vector<at::Tensor> result;
  for (const auto& parameter : distinct_parameters(model)) {
    if (parameter.value().requires_grad()) result.push_back(parameter.value());
  }
  return result;
}

}  // namespace gradmon
