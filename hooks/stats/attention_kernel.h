// SPDX-License-Identifier: Apache-2.0
// Entropy and maximum of attention weights, summed over the rows of one head; holds one tile of weights at a
// time (Highway). No torch, no state, any thread.
//
// The weights of a row are p_j = softmax(scale · q · k_j) over the keys that the row sees. Let m be the
// largest q · k_j, t_j = scale · (q · k_j − m), Z = Σ exp t_j and A = Σ t_j exp t_j. Then the entropy
// −Σ p_j log p_j is log Z − A / Z, and the largest weight is 1 / Z. Z and A of two tiles add up once both are
// relative to the same m (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
#pragma once

#include <cstddef>

#include "control/vocabulary.h"

namespace gradmon {

// Consecutive queries of one head, and all its keys. The elements of a query or key are contiguous; strides
// count elements. T: float or double.
template <typename T>
struct AttentionBlock {
  const T* queries = nullptr;
  std::ptrdiff_t query_stride = 0;
  std::size_t query_count = 0;
  std::size_t first_query = 0;  // index in the sequence
  const T* keys = nullptr;
  std::ptrdiff_t key_stride = 0;
  std::size_t key_count = 0;   // at least 1
  std::size_t width = 0;       // head size
  double scale = 1;            // above 0
  Causal causal = Causal::no;  // yes: query i sees the keys 0 … i (upper-left mask)
};

struct AttentionSums {
  double entropy = 0;  // in nats
  double softmax_max = 0;
};

// Products, and sums within a tile of kKeyTile keys, are of type T; sums over tiles are double. A row that
// sees a NaN or +inf score, or only −inf scores, makes both sums NaN, like softmax; otherwise a −inf score
// has a negligible weight. Scratch: kKeyTile · (width + 6) elements of T, and 32 bytes per query.
AttentionSums attention_sums(const AttentionBlock<float>& block);
AttentionSums attention_sums(const AttentionBlock<double>& block);

inline constexpr std::size_t kKeyTile = 256;

}  // namespace gradmon
