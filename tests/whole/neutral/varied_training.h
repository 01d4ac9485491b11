// SPDX-License-Identifier: Apache-2.0
// A training job with everything that a hook could disturb: shared, frozen and unused
// parameters, in-place modules, recomputation, random numbers, collectives.
#pragma once

#include <torch/optim/adamw.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/training/char_transformer.h"

namespace gradmon {

class GlooGroup;

struct Variation {
  std::string name;
  TransformerShape shape;
  std::vector<std::string> frozen;
};

// Two variations: activations kept and no weight shared; and activations recomputed, a
// weight shared, a module in place, and more experts than tokens.
std::vector<Variation> variations();

// The config keys of one kind. all_kinds() joins those of all kinds but the structure,
// after which the loop may end.
struct KindKeys {
  std::string name;
  std::string keys;
};
std::vector<KindKeys> kinds_alone();
std::string all_kinds();

class VariedTraining {
 public:
  static constexpr int kMicroBatches = 2;

  // The group must outlive the training; null: no collective is called.
  VariedTraining(const Variation& variation, GlooGroup* group);

  CharTransformer& model() { return model_; }
  torch::optim::AdamW& optimizer() { return optimizer_; }
  // One training step. `update` must step the optimizer.
  void step(const std::function<void(double loss)>& update);

  // Bytes of all parameters and gradients, their version counters, and the state
  // of torch's random generator.
  std::string fingerprint() const;
  // The number of hooks on parameters and their accumulators, plus one if forward calls
  // are observed, plus one if the dispatcher is.
  std::size_t hooks() const;
  // The number of trainable parameters that have no gradient now.
  std::size_t unused() const;

 private:
  at::Tensor loss_of(int micro);

  CharTransformer model_;
  torch::optim::AdamW optimizer_;
  GlooGroup* const group_;
  int steps_done_ = 0;
};

}  // namespace gradmon
