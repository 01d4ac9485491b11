// SPDX-License-Identifier: Apache-2.0
// This file is compiled once for each instruction set: foreach_target.h includes it repeatedly.
#ifndef HWY_DISABLED_TARGETS  // vectors without a compile-time size cannot be members
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hooks/stats/attention_kernel.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hooks/stats/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace gradmon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kRows = 6;  // queries at a time

// The sums of one query so far, relative to its largest score so far.
struct Row {
  double max = -std::numeric_limits<double>::infinity();
  double weights = 0;   // Z
  double weighted = 0;  // A
  bool undefined = false;
};

// Transposes keys into panels of two vectors: [panel][element][lane]. Pads the last panel with zeros.
template <class D, typename T = hn::TFromD<D>>
void pack(const T* keys, std::ptrdiff_t stride, std::size_t count, std::size_t width, T* packed) {
  const std::size_t lanes = 2 * hn::Lanes(D());
  for (std::size_t first = 0; first < count; first += lanes, packed += width * lanes) {
    const std::size_t here = std::min(lanes, count - first);
    if (here < lanes) std::fill_n(packed, width * lanes, T{0});
    for (std::size_t j = 0; j < here; ++j) {
      const T* key = keys + static_cast<std::ptrdiff_t>(first + j) * stride;
      for (std::size_t i = 0; i < width; ++i) packed[i * lanes + j] = key[i];
    }
  }
}

// Stores the products of kRows queries with the keys of one panel; rows of `scores` are kKeyTile apart.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void multiply(const T* const* queries, const T* panel, std::size_t width, T* scores) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  auto a0 = hn::Zero(d), a1 = a0, b0 = a0, b1 = a0, c0 = a0, c1 = a0;
  auto d0 = a0, d1 = a0, e0 = a0, e1 = a0, f0 = a0, f1 = a0;
  for (std::size_t i = 0; i < width; ++i, panel += 2 * lanes) {
    const auto left = hn::LoadU(d, panel);
    const auto right = hn::LoadU(d, panel + lanes);
    auto query = hn::Set(d, queries[0][i]);
    a0 = hn::MulAdd(query, left, a0);
    a1 = hn::MulAdd(query, right, a1);
    query = hn::Set(d, queries[1][i]);
    b0 = hn::MulAdd(query, left, b0);
    b1 = hn::MulAdd(query, right, b1);
    query = hn::Set(d, queries[2][i]);
    c0 = hn::MulAdd(query, left, c0);
    c1 = hn::MulAdd(query, right, c1);
    query = hn::Set(d, queries[3][i]);
    d0 = hn::MulAdd(query, left, d0);
    d1 = hn::MulAdd(query, right, d1);
    query = hn::Set(d, queries[4][i]);
    e0 = hn::MulAdd(query, left, e0);
    e1 = hn::MulAdd(query, right, e1);
    query = hn::Set(d, queries[5][i]);
    f0 = hn::MulAdd(query, left, f0);
    f1 = hn::MulAdd(query, right, f1);
  }
  const auto store = [&](std::size_t row, auto x, auto y) HWY_ATTR {
    hn::StoreU(x, d, scores + row * kKeyTile);
    hn::StoreU(y, d, scores + row * kKeyTile + lanes);
  };
  store(0, a0, a1);
  store(1, b0, b1);
  store(2, c0, c1);
  store(3, d0, d1);
  store(4, e0, e1);
  store(5, f0, f1);
}

// The largest score; NaN if any score is NaN or +inf. `count`: a multiple of the vector size.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE T largest(const T* scores, std::size_t count) {
  const D d;
  auto max = hn::LoadU(d, scores);
  auto fine = hn::Lt(max, hn::Inf(d));
  for (std::size_t j = hn::Lanes(d); j < count; j += hn::Lanes(d)) {
    const auto s = hn::LoadU(d, scores + j);
    fine = hn::And(fine, hn::Lt(s, hn::Inf(d)));
    max = hn::Max(max, s);
  }
  if (!hn::AllTrue(d, fine)) return std::numeric_limits<T>::quiet_NaN();
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

// Adds the first `count` scores of a tile to `row`. Overwrites the scores after them, up to a whole vector.
template <class D, typename T = hn::TFromD<D>>
void take(T* scores, std::size_t count, double scale, Row& row) {
  const D d;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t whole = (count + lanes - 1) / lanes * lanes;
  std::fill(scores + count, scores + whole, -infinity);
  const T max = largest<D>(scores, whole);
  if (max != max) row.undefined = true;
  if (max == -infinity || row.undefined) return;
  if (static_cast<double>(max) > row.max) {
    const double shift = scale * (row.max - static_cast<double>(max));
    if (row.weights > 0) {
      row.weighted = std::exp(shift) * (row.weighted + row.weights * shift);
      row.weights *= std::exp(shift);
    }
    row.max = static_cast<double>(max);
  }
  // Below this exponent the weight is negligible, and exp would return slow denormals.
  const auto least = hn::Set(d, sizeof(T) == sizeof(float) ? T(-87) : T(-700));
  const auto shift = hn::Set(d, static_cast<T>(row.max));
  const auto factor = hn::Set(d, static_cast<T>(scale));
  auto weights = hn::Zero(d);
  auto weighted = hn::Zero(d);
  for (std::size_t j = 0; j < whole; j += lanes) {
    const auto t = hn::Max(hn::Mul(hn::Sub(hn::LoadU(d, scores + j), shift), factor), least);
    const auto weight = hn::Exp(d, t);
    weights = hn::Add(weights, weight);
    weighted = hn::MulAdd(t, weight, weighted);
  }
  row.weights += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, weights)));
  row.weighted += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, weighted)));
}

template <typename T>
std::size_t seen_by(const AttentionBlock<T>& block, std::size_t query) {
  return block.causal == Causal::yes ? std::min(block.first_query + query + 1, block.key_count)
                                     : block.key_count;
}

// Adds one tile of keys to the sums of queries first … first + kRows − 1 (fewer at the end of the block).
template <class D, typename T = hn::TFromD<D>>
void take_rows(const AttentionBlock<T>& block, std::size_t first, std::size_t tile, const T* packed,
               T* scores, std::vector<Row>& rows) {
  const std::size_t here = std::min(kRows, block.query_count - first);
  const std::size_t seen = std::min(seen_by(block, first + here - 1), tile + kKeyTile);
  if (seen <= tile) return;
  const T* queries[kRows];
  for (std::size_t i = 0; i < kRows; ++i) {
    queries[i] =
        block.queries + static_cast<std::ptrdiff_t>(first + std::min(i, here - 1)) * block.query_stride;
  }
  const std::size_t lanes = 2 * hn::Lanes(D());
  for (std::size_t j = 0; j < seen - tile; j += lanes) {
    multiply<D>(queries, packed + j * block.width, block.width, scores + j);
  }
  for (std::size_t i = 0; i < here; ++i) {
    const std::size_t own = std::min(seen_by(block, first + i), tile + kKeyTile);
    if (own > tile) take<D>(scores + i * kKeyTile, own - tile, block.scale, rows[first + i]);
  }
}

template <typename T>
AttentionSums sums_of(const AttentionBlock<T>& block) {
  using D = hn::ScalableTag<T>;
  if (block.query_count == 0) return {};
  std::vector<T> packed(kKeyTile * block.width);
  std::vector<T> scores(kRows * kKeyTile);
  std::vector<Row> rows(block.query_count);
  const std::size_t seen = seen_by(block, block.query_count - 1);
  for (std::size_t tile = 0; tile < seen; tile += kKeyTile) {
    pack<D>(block.keys + static_cast<std::ptrdiff_t>(tile) * block.key_stride, block.key_stride,
            std::min(kKeyTile, seen - tile), block.width, packed.data());
    for (std::size_t first = 0; first < block.query_count; first += kRows) {
      take_rows<D>(block, first, tile, packed.data(), scores.data(), rows);
    }
  }
  AttentionSums sums;
  for (const Row& row : rows) {
    const double weights = row.undefined ? std::numeric_limits<double>::quiet_NaN() : row.weights;
    sums.entropy += std::log(weights) - row.weighted / weights;
    sums.softmax_max += weights > 0 ? 1 / weights : std::numeric_limits<double>::quiet_NaN();
  }
  return sums;
}

AttentionSums float_sums(const AttentionBlock<float>& block) { return sums_of(block); }
AttentionSums double_sums(const AttentionBlock<double>& block) { return sums_of(block); }

}  // namespace HWY_NAMESPACE
}  // namespace gradmon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmon {

HWY_EXPORT(float_sums);
HWY_EXPORT(double_sums);

AttentionSums attention_sums(const AttentionBlock<float>& block) {
  return HWY_DYNAMIC_DISPATCH(float_sums)(block);
}
AttentionSums attention_sums(const AttentionBlock<double>& block) {
  return HWY_DYNAMIC_DISPATCH(double_sums)(block);
}

}  // namespace gradmon
#endif  // HWY_ONCE
