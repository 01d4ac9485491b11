// SPDX-License-Identifier: Apache-2.0
// The training of gradmon-train, one rank of it, step by step.
#pragma once

#include <gradmon/monitor.h>
#include <torch/optim/optimizer.h>

#include <memory>

#include "tests/training/char_transformer.h"
#include "tests/training/text_batches.h"

namespace gradmon {

// Training thread.
class Training {
 public:
  enum class Optimizer { sgd, adamw };  // adamw clips first, as gradmon-train does

  Training(CharTransformer::Shape shape, TextBatches::Shape batch, Optimizer optimizer);

  CharTransformer& model() { return model_; }
  torch::optim::Optimizer& optimizer() { return *optimizer_; }
  // The monitor calls the optimizer. Null: there is no monitor.
  void step(Monitor* monitor);
  // The part of a step before the optimizer.
  void backward();

 private:
  CharTransformer model_;
  TextBatches batches_;
  const bool clips_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace gradmon
