// SPDX-License-Identifier: Apache-2.0
// The kernels: one pass over contiguous numbers (Highway, for the instruction set found at run time). No
// torch, no state, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "control/vocabulary.h"
#include "writers/queue/record.h"

namespace gradmon {

// The result of one pass. add() combines the results of several parts, exactly except for the rounding of
// sums. min and max are meaningless if `nans` > 0.
struct PartialStats {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double sum_squares = 0;
  std::uint64_t elements = 0;
  std::uint64_t nans = 0;
  std::uint64_t zeros = 0;  // elements with abs(x) < eps, compared in double

  void add(const PartialStats& other);
  // The result for `times` copies of every element.
  void repeat(std::uint64_t times);
};

// Element types that the kernel reads; float16 and bfloat16 as bit patterns.
enum class FloatType { float32, float64, float16, bfloat16 };

constexpr std::size_t size_of(FloatType type) {
  return type == FloatType::float64 ? 8 : type == FloatType::float32 ? 4 : 2;
}

// `data`: `count` elements, aligned for their type. Sums are double; sums of float16 and bfloat16 are added
// in float 16 vectors at a time and may be off by 1e-6 of the sum of magnitudes. For the same data the result
// depends only on the instruction set.
PartialStats kernel_stats(FloatType type, const void* data, std::size_t count, double eps);

// float_threshold() for float16 and bfloat16: the bit pattern of the smallest value that is not below eps.
std::uint16_t half_threshold(FloatType type, double eps);

// The value of a float16 or bfloat16 with these bits.
double widened(FloatType type, std::uint16_t bits);

// kernel_stats() in one scalar loop. The kernel uses it for the last few elements; the tests compare the
// kernel with it.
PartialStats reference_stats(FloatType type, const void* data, std::size_t count, double eps);

// The exact sum of sign(a) · sign(b) over `count` pairs: the number of equal signs minus the number of
// opposite signs. The sign of ±0 and NaN is 0 (as in torch::sign); denormals keep their sign. `a`, `b`:
// aligned for `type`.
std::int64_t kernel_sign_agreement(FloatType type, const void* a, const void* b, std::size_t count);

// The bins of update = m̂ / (√v̂ + eps) and of ratio = m̂ / √v̂.
struct AdamBins {
  BinCounts update{};
  BinCounts ratio{};

  void add(const AdamBins& other);
};

// m̂ = m / first and v̂ = v / second: they are 1 - β₁ᵗ and 1 - β₂ᵗ after t steps.
struct AdamCorrections {
  double first = 1;
  double second = 1;
  double eps = 0;
};

// `first`, `second`: `count` elements of m and v, aligned for their type. Computed in double, operation by
// operation as torch does: just before a parameter's second step many ratios are ±1 but for the last bits.
// Sorted into bins as torch.histc does: trunc((x + 1) · 15), and 29 for x = 1.
AdamBins kernel_adam_bins(const float* first, const float* second, std::size_t count,
                          const AdamCorrections& corrections);
AdamBins kernel_adam_bins(const double* first, const double* second, std::size_t count,
                          const AdamCorrections& corrections);

// Entropy and maximum of attention weights, summed over the rows of one head; holds one tile of weights at a
// time. The weights of a row are p_j = softmax(scale · q · k_j) over the keys that the row sees. Let m be the
// largest q · k_j, t_j = scale · (q · k_j − m), Z = Σ exp t_j and A = Σ t_j exp t_j. Then the entropy
// −Σ p_j log p_j is log Z − A / Z, and the largest weight is 1 / Z. Z and A of two tiles add up once both are
// relative to the same m (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).

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
