// SPDX-License-Identifier: Apache-2.0
// Sums of attention weights over the rows of one head, without ever holding
// more of them than a tile (Highway). No torch, no state, any thread.
//
// A row's weights are p_j = softmax(scale · q · k_j) over the keys that it sees.
// With m the largest score, t_j = scale · (q · k_j − m), Z = Σ exp t_j and
// A = Σ t_j exp t_j, its entropy −Σ p_j log p_j is log Z − A / Z, and its largest
// weight 1 / Z; Z and A of one tile of keys add to those of the next once both
// are made relative to the same m (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018).
#pragma once

#include <cstddef>

#include "control/vocabulary.h"

namespace gradmon {

// Consecutive queries of one head, and all its keys. A query's and a key's
// elements lie side by side; strides are counted in elements. T: float, double.
template <typename T>
struct AttentionBlock {
  const T* queries = nullptr;
  std::ptrdiff_t query_stride = 0;
  std::size_t query_count = 0;
  std::size_t first_query = 0;  // its place in the sequence
  const T* keys = nullptr;
  std::ptrdiff_t key_stride = 0;
  std::size_t key_count = 0;   // at least 1
  std::size_t width = 0;       // head size
  double scale = 1;            // above 0
  Causal causal = Causal::no;  // query i sees the keys 0 … i, whatever their number (as torch: top left)
};

struct AttentionSums {
  double entropy = 0;  // in nats
  double softmax_max = 0;
};

// Products in T, sums over keys in double from tiles of kKeyTile. A row that
// sees a NaN or +inf score, or nothing but −inf, makes both sums NaN, as softmax
// does; otherwise a score of −inf weighs nothing. Scratch: kKeyTile · (width + 6)
// elements of T and 32 bytes a query.
AttentionSums attention_sums(const AttentionBlock<float>& block);
AttentionSums attention_sums(const AttentionBlock<double>& block);

inline constexpr std::size_t kKeyTile = 256;

}  // namespace gradmon
