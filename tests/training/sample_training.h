// SPDX-License-Identifier: Apache-2.0
// Small models and batches from fixed seeds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/training/char_transformer.h"
#include "tests/training/text_batches.h"

namespace gradmon {

// Two layers, sixteen wide, eight bytes of context.
TransformerShape small_shape();
std::shared_ptr<CharTransformer> seeded_model(const TransformerShape& shape);
// `texts` rows of eight random bytes; the targets are random too.
TextBatch sample_batch(std::int64_t texts);

// The gradient of each distinct parameter, in the model's order; undefined if the parameter has none.
std::vector<at::Tensor> gradients(const torch::nn::Module& model);
// Whether the tensors of each pair are bit for bit equal, or both undefined.
bool equal_tensors(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

}  // namespace gradmon
