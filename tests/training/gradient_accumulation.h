// SPDX-License-Identifier: Apache-2.0
// One step's gradients from several micro batches.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tests/training/char_transformer.h"
#include "tests/training/text_batches.h"

namespace gradmon {

// Makes every gradient undefined, so that after the next backward only parameters that took
// part have one. zero_grad() of torch 1.13 would leave zeros.
void unset_gradients(const std::vector<at::Tensor>& parameters);

struct MicroBatchResult {
  at::Tensor loss;                      // mean over the micro batches, without a graph
  std::vector<ExpertLoad> expert_load;  // sums over the micro batches
};

// Runs a forward and a backward for each micro batch (at least one), with the loss divided by
// their number. For micro batches of equal size the result is, up to rounding, the gradients
// of one batch of all. Adds to the existing gradients.
MicroBatchResult accumulate_gradients(CharTransformer& model, const std::vector<TextBatch>& micro_batches);

}  // namespace gradmon
