// SPDX-License-Identifier: Apache-2.0
#include "tests/support/training_step.h"

#include <ATen/ops/empty.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

namespace gradmon {

std::string default_text() {
  const std::string newest = "/usr/share/common-licenses/GPL-3";
  return std::filesystem::exists(newest) ? newest : "/usr/share/common-licenses/GPL-2";
}

TextBatches::TextBatches(const std::string& path, Shape shape, std::uint64_t seed, int rank) : shape_(shape) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  text_ = text.str();
  if (!file || !text) throw std::runtime_error("cannot read the text " + path);
  if (text_.size() <= static_cast<std::size_t>(shape.context)) {
    throw std::runtime_error(path + " has " + std::to_string(text_.size()) +
                             " bytes: it must be longer than --context " + std::to_string(shape.context));
  }
  std::seed_seq seeds{seed, static_cast<std::uint64_t>(rank)};
  random_.seed(seeds);
}

TextBatch TextBatches::next() {
  TextBatch result{at::empty({shape_.batch, shape_.context}, at::kLong),
                   at::empty({shape_.batch, shape_.context}, at::kLong)};
  auto* input = result.inputs.data_ptr<std::int64_t>();
  auto* target = result.targets.data_ptr<std::int64_t>();
  const auto context = static_cast<std::size_t>(shape_.context);
  for (std::int64_t row = 0; row < shape_.batch; ++row) {
    const std::size_t start = random_() % (text_.size() - context);
    for (std::size_t i = start; i < start + context; ++i) {
      *input++ = static_cast<unsigned char>(text_[i]);
      *target++ = static_cast<unsigned char>(text_[i + 1]);
    }
  }
  return result;
}

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

void unset_gradients(const std::vector<at::Tensor>& parameters) {
  for (const auto& parameter : parameters) parameter.mutable_grad() = at::Tensor();
}

MicroBatchResult accumulate_gradients(CharTransformer& model, const std::vector<TextBatch>& micro_batches) {
  MicroBatchResult result;
  for (const auto& batch : micro_batches) {
    const auto loss = model.loss(batch.inputs, batch.targets) / static_cast<double>(micro_batches.size());
    auto load = model.expert_load();
    if (result.loss.defined()) {
      result.loss = result.loss + loss.detach();
      for (std::size_t i = 0; i < load.size(); ++i) {
        result.expert_load[i].tokens = result.expert_load[i].tokens + load[i].tokens;
      }
    } else {
      result = {loss.detach(), std::move(load)};
    }
    loss.backward();
  }
  return result;
}

}  // namespace gradmon
