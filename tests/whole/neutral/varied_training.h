// SPDX-License-Identifier: Apache-2.0
// A training with all that a hook could disturb: shared, frozen and unused
// parameters, modules in place, recomputation, random numbers, collectives.
#pragma once

#include <torch/optim/adamw.h>

#include <functional>
#include <string>
#include <vector>

#include "tools/gradmon_train/char_transformer.h"

namespace gradmon {

class GlooRank;

struct Variation {
  std::string name;
  TransformerShape shape;
  std::vector<std::string> frozen;
};

// Everything kept and owned; and everything recomputed, shared, in place, with
// more experts than tokens.
std::vector<Variation> variations();

// What a config has to say for one kind, or for all of them together (but for the
// structure, after which a training may end).
struct KindKeys {
  std::string name;
  std::string keys;
};
std::vector<KindKeys> kinds_alone();
std::string all_kinds();

class VariedTraining {
 public:
  static constexpr int kMicroBatches = 2;

  // The group outlives it; null: no collective is called.
  VariedTraining(const Variation& variation, GlooRank* group);

  CharTransformer& model() { return model_; }
  torch::optim::AdamW& optimizer() { return optimizer_; }
  // One step; `update` is to step the optimizer.
  void step(const std::function<void(double loss)>& update);

  // Bytes of all parameters and gradients, their version counters, and the state
  // of torch's random generator.
  std::string fingerprint() const;
  // Hooks of anybody's on parameters and their accumulators, forwards that are
  // listened to, observers of the dispatcher.
  std::size_t hooks() const;
  // Parameters that have no gradient now though they want one.
  std::size_t unused() const;

 private:
  at::Tensor loss_of(int micro);

  CharTransformer model_;
  torch::optim::AdamW optimizer_;
  GlooRank* const group_;
  int made_ = 0;
};

}  // namespace gradmon
