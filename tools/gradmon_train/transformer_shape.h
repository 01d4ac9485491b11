// SPDX-License-Identifier: Apache-2.0
// What a CharTransformer is built of.
#pragma once

#include <cstdint>

namespace gradmon {

enum class Activation { gelu, relu, relu_in_place };
// Of a block: kept from forward to backward, or computed again there.
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
