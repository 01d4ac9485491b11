// SPDX-License-Identifier: Apache-2.0
// A small training job with fixed weights and inputs, and the values that gradmon
// must collect from it, computed with plain torch.
#pragma once

#include <gradmon/monitor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <map>
#include <string>
#include <tuple>

namespace gradmon {

// fc1 (8 to 16), ReLU in place or not, fc2 (16 to 4).
struct PlainNet : torch::nn::Module {
  explicit PlainNet(bool in_place);
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Linear fc1, fc2;
  torch::nn::ReLU act;
};

// Kind (the prefix of the file, or "micro_grad"), name, step, micro step.
using ValueKey = std::tuple<std::string, std::string, int, int>;
// The tensor behind each expected row.
using ExpectedValues = std::map<ValueKey, at::Tensor>;

class PlainTraining {
 public:
  explicit PlainTraining(int micro_batches, bool in_place = false);

  PlainNet& model() { return model_; }
  torch::optim::AdamW& optimizer() { return optimizer_; }
  // One training step. Halves the gradients between reduction and update, so that the
  // gradients before and after reduction differ.
  void step(Monitor& monitor);

  // The values of `steps` steps of the same training without gradmon.
  static ExpectedValues expected(int micro_batches, int steps);

 private:
  at::Tensor batch(int step, int micro) const;
  void halve_gradients();

  const int micro_batches_;
  PlainNet model_;
  torch::optim::AdamW optimizer_;
  int step_ = 0;
};

}  // namespace gradmon
