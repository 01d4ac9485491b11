// SPDX-License-Identifier: Apache-2.0
// Small models and batches, the same ones each time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/gradmon_train/char_transformer.h"
#include "tools/gradmon_train/text_batches.h"

namespace gradmon {

// Two layers, sixteen wide, eight bytes of context.
TransformerShape small_shape();
std::shared_ptr<CharTransformer> seeded_model(const TransformerShape& shape);
// Random bytes.
TextBatch sample_batch(std::int64_t texts, std::int64_t length = 8);

// Of each distinct parameter, in the model's order; undefined ones too.
std::vector<at::Tensor> gradients(const torch::nn::Module& model);
// Both undefined, or the same bits.
bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

}  // namespace gradmon
