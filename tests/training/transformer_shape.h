// SPDX-License-Identifier: Apache-2.0
// The dimensions and variants of a CharTransformer.
#pragma once

#include <cstdint>

namespace gradmon {

enum class Activation { gelu, relu, relu_in_place };
// The activations in a block: kept from forward to backward, or recomputed in the backward.
enum class BlockValues { kept, recomputed };
enum class HeadWeight { own, token_embedding };

struct TransformerShape {
  std::int64_t layers;
  std::int64_t width;                  // a multiple of CharTransformer::kHeads
  std::int64_t context;                // longest text in bytes
  std::int64_t experts = 0;            // 0: a perceptron in each block, not a mixture
  std::int64_t experts_per_token = 1;  // at most `experts`
  Activation activation = Activation::gelu;
  BlockValues block_values = BlockValues::kept;
  HeadWeight head_weight = HeadWeight::own;
};

}  // namespace gradmon
