// SPDX-License-Identifier: Apache-2.0
#include <torch/types.h>  // Keep first: clip_grad.h needs it and does not say so.

#include "tests/benchmarks/training.h"

#include <ATen/Context.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

namespace gradmon {
namespace {

std::unique_ptr<torch::optim::Optimizer> make(Training::Optimizer kind, std::vector<at::Tensor> parameters) {
  if (kind == Training::Optimizer::sgd) {
    return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(1e-3));
  }
  return std::make_unique<torch::optim::AdamW>(std::move(parameters), torch::optim::AdamWOptions(3e-3));
}

}  // namespace

Training::Training(CharTransformer::Shape shape, TextBatches::Shape batch, Optimizer optimizer)
    : model_(shape),
      batches_(default_text(), batch, 1, 0),
      clips_(optimizer == Optimizer::adamw),
      optimizer_(make(optimizer, model_.parameters())) {
  at::globalContext().setDeterministicAlgorithms(true, false);
}

void Training::backward() {
  const TextBatch batch = batches_.next();
  optimizer_->zero_grad();
  model_.loss(batch.inputs, batch.targets).backward();
  if (clips_) torch::nn::utils::clip_grad_norm_(model_.parameters(), 1.0);
}

void Training::step(Monitor* monitor) {
  backward();
  if (monitor != nullptr) {
    monitor->step(*optimizer_);
  } else {
    optimizer_->step();
  }
}

}  // namespace gradmon
