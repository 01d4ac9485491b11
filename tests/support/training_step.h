// SPDX-License-Identifier: Apache-2.0
// The parts of a step of training: batches of a text, the parameters that it updates, and their gradients
// from several micro batches.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/support/char_transformer.h"

namespace gradmon {

// Two int64 tensors of batch × context: bytes, and the bytes that follow them.
struct TextBatch {
  at::Tensor inputs;
  at::Tensor targets;
};

// A text that Debian installs.
std::string default_text();

// An endless sequence of batches from the bytes of a text file. One thread. They depend only on text, seed
// and rank.
class TextBatches {
 public:
  struct Shape {
    std::int64_t batch;
    std::int64_t context;
  };

  // Throws std::runtime_error if the file cannot be read or is not longer than
  // one context.
  TextBatches(const std::string& path, Shape shape, std::uint64_t seed, int rank);

  TextBatch next();

 private:
  const Shape shape_;
  std::string text_;
  std::mt19937_64 random_;
};

// Each parameter once, under its first name. libtorch lists a shared parameter under each of
// its names.
torch::OrderedDict<std::string, at::Tensor> distinct_parameters(const torch::nn::Module& model);

// Parameters whose name contains one of the patterns get no gradient any more. Throws
// std::invalid_argument if no name contains a pattern, or if no parameter is left to train.
void freeze(const torch::nn::Module& model, const std::vector<std::string>& patterns);

// The distinct parameters that are not frozen, for the optimizer. (It would skip a parameter
// without a gradient, but keep it.)
std::vector<at::Tensor> trainable_parameters(const torch::nn::Module& model);

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
