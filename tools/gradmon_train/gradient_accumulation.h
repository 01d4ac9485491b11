// SPDX-License-Identifier: Apache-2.0
// One step's gradients from several micro batches.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tools/gradmon_train/char_transformer.h"
#include "tools/gradmon_train/text_batches.h"

namespace gradmon {

// Leaves every gradient undefined, so that afterwards those have one that took
// part; zero_grad() of torch 1.13 leaves zeros.
void forget_gradients(const std::vector<at::Tensor>& parameters);

struct Accumulated {
  at::Tensor loss;                      // mean over the micro batches, without a graph
  std::vector<ExpertLoad> expert_load;  // sums over them
};

// A forward and a backward for each of at least one micro batch, the loss divided
// by their number: to rounding, and where they are equally large, the gradients of
// all as one batch. Gradients are added to those that are there.
Accumulated accumulate_gradients(CharTransformer& model, const std::vector<TextBatch>& micro_batches);

}  // namespace gradmon
