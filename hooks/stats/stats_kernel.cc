// SPDX-License-Identifier: Apache-2.0
// This file is compiled once for each instruction set: foreach_target.h includes it repeatedly.
#ifndef HWY_DISABLED_TARGETS  // vectors without a compile-time size cannot be members
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hooks/stats/stats_kernel.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "hooks/stats/stats_kernel.h"
#include "hooks/stats/stats_reference.h"

HWY_BEFORE_NAMESPACE();
namespace gradmon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kPrefetchBytes = 2048;
// Maximum elements read before the lanes are added to PartialStats. If their sum is NaN, they are read again
// from the cache to count the NaNs.
constexpr std::size_t kBlock = std::size_t{1} << 14;

using F32 = hn::ScalableTag<float>;
using F64 = hn::ScalableTag<double>;

// Minimum, maximum and count of zeros over vectors of D.
template <class D>
struct Extremes {
  using V = hn::Vec<D>;
  using I = hn::RebindToSigned<D>;

  V min, max;
  hn::Vec<I> zeros;

  // Not defaulted: a default constructor would not be compiled for the target.
  HWY_INLINE Extremes()
      : min(hn::Set(D(), std::numeric_limits<hn::TFromD<D>>::infinity())),
        max(hn::Set(D(), -std::numeric_limits<hn::TFromD<D>>::infinity())),
        zeros(hn::Zero(I())) {}

  HWY_INLINE void take(V a, V b, V threshold) {
    min = hn::Min(min, hn::Min(a, b));
    max = hn::Max(max, hn::Max(a, b));
    zeros = hn::Sub(zeros, hn::VecFromMask(I(), hn::RebindMask(I(), hn::Lt(hn::Abs(a), threshold))));
    zeros = hn::Sub(zeros, hn::VecFromMask(I(), hn::RebindMask(I(), hn::Lt(hn::Abs(b), threshold))));
  }

  HWY_INLINE void finish(PartialStats& stats) const {
    stats.zeros += static_cast<std::uint64_t>(hn::GetLane(hn::SumOfLanes(I(), zeros)));
    stats.min = HWY_MIN(stats.min, static_cast<double>(hn::GetLane(hn::MinOfLanes(D(), min))));
    stats.max = HWY_MAX(stats.max, static_cast<double>(hn::GetLane(hn::MaxOfLanes(D(), max))));
  }
};

// Sum and sum of squares, with four accumulators each, so that additions do not wait for each other.
struct Sums {
  using V = hn::Vec<F64>;

  V sum0, sum1, sum2, sum3;
  V square0, square1, square2, square3;

  HWY_INLINE Sums() {
    sum0 = sum1 = sum2 = sum3 = hn::Zero(F64());
    square0 = square1 = square2 = square3 = hn::Zero(F64());
  }

  HWY_INLINE void take(V a, V b, V c, V d) {
    sum0 = hn::Add(sum0, a);
    sum1 = hn::Add(sum1, b);
    sum2 = hn::Add(sum2, c);
    sum3 = hn::Add(sum3, d);
    square0 = hn::MulAdd(a, a, square0);
    square1 = hn::MulAdd(b, b, square1);
    square2 = hn::MulAdd(c, c, square2);
    square3 = hn::MulAdd(d, d, square3);
  }

  // Returns the sum.
  HWY_INLINE double finish(PartialStats& stats) const {
    const V total = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
    const V square = hn::Add(hn::Add(square0, square1), hn::Add(square2, square3));
    const double sum = hn::GetLane(hn::SumOfLanes(F64(), total));
    stats.sum += sum;
    stats.sum_squares += hn::GetLane(hn::SumOfLanes(F64(), square));
    return sum;
  }
};

#if HWY_TARGET == HWY_SCALAR  // a vector of one lane has no halves
HWY_INLINE hn::Vec<F64> lower(hn::Vec<F32> x) { return hn::PromoteTo(F64(), x); }
HWY_INLINE hn::Vec<F64> upper(hn::Vec<F32>) { return hn::Zero(F64()); }
#else
using F32Half = hn::Half<F32>;
HWY_INLINE hn::Vec<F64> lower(hn::Vec<F32> x) { return hn::PromoteTo(F64(), hn::LowerHalf(F32Half(), x)); }
HWY_INLINE hn::Vec<F64> upper(hn::Vec<F32> x) { return hn::PromoteTo(F64(), hn::UpperHalf(F32Half(), x)); }
#endif

HWY_INLINE hn::Vec<F32> load(const float* data) { return hn::LoadU(F32(), data); }
HWY_INLINE hn::Vec<F32> load(const hwy::bfloat16_t* data) {
  return hn::PromoteTo(F32(), hn::LoadU(hn::Rebind<hwy::bfloat16_t, F32>(), data));
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSE2 || \
    HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4
// On targets without a float16 instruction Highway 1.0 and 1.2 widen infinity to 65536. 1.0 has no SSE2.
HWY_INLINE hn::Vec<F32> load(const hwy::float16_t* data) {
  const hn::RebindToUnsigned<F32> u32;
  const hn::Rebind<std::uint16_t, F32> u16;
  const auto half = hn::PromoteTo(u32, hn::LoadU(u16, reinterpret_cast<const std::uint16_t*>(data)));
  const auto exponent = hn::And(half, hn::Set(u32, 0x7c00));
  const auto rebias = hn::Set(u32, 112U << 23);
  const auto normal = hn::Add(hn::ShiftLeft<13>(hn::And(half, hn::Set(u32, 0x7fff))), rebias);
  const auto smallest = hn::Set(u32, 113U << 23);
  const auto denormal = hn::BitCast(u32, hn::Sub(hn::BitCast(F32(), hn::Add(normal, hn::Set(u32, 1U << 23))),
                                                 hn::BitCast(F32(), smallest)));
  const auto not_finite = hn::Add(normal, rebias);
  const auto magnitude = hn::IfThenElse(hn::Eq(exponent, hn::Set(u32, 0x7c00)), not_finite,
                                        hn::IfThenElse(hn::Eq(exponent, hn::Zero(u32)), denormal, normal));
  return hn::BitCast(F32(), hn::Or(magnitude, hn::ShiftLeft<16>(hn::And(half, hn::Set(u32, 0x8000)))));
}
#else
HWY_INLINE hn::Vec<F32> load(const hwy::float16_t* data) {
  return hn::PromoteTo(F32(), hn::LoadU(hn::Rebind<hwy::float16_t, F32>(), data));
}
#endif

HWY_INLINE hn::Vec<F64> load(const double* data) { return hn::LoadU(F64(), data); }

// `count`: a multiple of the vector size.
template <class D, class T>
std::uint64_t count_nans(const T* data, std::size_t count) {
  std::uint64_t nans = 0;
  for (std::size_t i = 0; i < count; i += hn::Lanes(D()))
    nans += hn::CountTrue(D(), hn::IsNaN(load(data + i)));
  return nans;
}

// narrow_block and double_block read as many elements as whole iterations of their loop cover, at most
// kBlock, and return that number (0: fewer than one iteration is left).
template <class T>
std::size_t narrow_block(const T* data, std::size_t count, double eps, PartialStats& stats) {
  const std::size_t lanes = hn::Lanes(F32());
  const std::size_t turn = 2 * lanes;
  const std::size_t whole = HWY_MIN(count, kBlock) / turn * turn;
  const auto threshold = hn::Set(F32(), float_threshold(eps));
  Extremes<F32> extremes;
  Sums sums;
  for (std::size_t i = 0; i < whole; i += turn) {
    hwy::Prefetch(data + i + kPrefetchBytes / sizeof(T));
    const auto a = load(data + i);
    const auto b = load(data + i + lanes);
    extremes.take(a, b, threshold);
    sums.take(lower(a), upper(a), lower(b), upper(b));
  }
  extremes.finish(stats);
  if (const double sum = sums.finish(stats); sum != sum) stats.nans += count_nans<F32>(data, whole);
  return whole;
}

std::size_t double_block(const double* data, std::size_t count, double eps, PartialStats& stats) {
  const std::size_t lanes = hn::Lanes(F64());
  const std::size_t turn = 4 * lanes;
  const std::size_t whole = HWY_MIN(count, kBlock) / turn * turn;
  const auto threshold = hn::Set(F64(), eps);
  Extremes<F64> extremes;
  Sums sums;
  for (std::size_t i = 0; i < whole; i += turn) {
    hwy::Prefetch(data + i + kPrefetchBytes / sizeof(double));
    const auto a = load(data + i);
    const auto b = load(data + i + lanes);
    const auto c = load(data + i + 2 * lanes);
    const auto d = load(data + i + 3 * lanes);
    extremes.take(a, b, threshold);
    extremes.take(c, d, threshold);
    sums.take(a, b, c, d);
  }
  extremes.finish(stats);
  if (const double sum = sums.finish(stats); sum != sum) stats.nans += count_nans<F64>(data, whole);
  return whole;
}

PartialStats target_stats(FloatType type, const void* data, std::size_t count, double eps) {
  PartialStats stats;
  std::size_t done = 0;
  for (std::size_t block = 1; block != 0; done += block) {
    const std::size_t left = count - done;
    switch (type) {
      case FloatType::float32:
        block = narrow_block(static_cast<const float*>(data) + done, left, eps, stats);
        break;
      case FloatType::float64:
        block = double_block(static_cast<const double*>(data) + done, left, eps, stats);
        break;
      case FloatType::float16:
        block = narrow_block(static_cast<const hwy::float16_t*>(data) + done, left, eps, stats);
        break;
      case FloatType::bfloat16:
        block = narrow_block(static_cast<const hwy::bfloat16_t*>(data) + done, left, eps, stats);
        break;
    }
  }
  stats.elements = done;
  const auto* rest = static_cast<const unsigned char*>(data) + done * size_of(type);
  stats.add(reference_stats(type, rest, count - done, eps));
  return stats;
}

}  // namespace HWY_NAMESPACE
}  // namespace gradmon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cmath>

namespace gradmon {

HWY_EXPORT(target_stats);

PartialStats kernel_stats(FloatType type, const void* data, std::size_t count, double eps) {
  return HWY_DYNAMIC_DISPATCH(target_stats)(type, data, count, eps);
}

void PartialStats::add(const PartialStats& other) {
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  sum += other.sum;
  sum_squares += other.sum_squares;
  elements += other.elements;
  nans += other.nans;
  zeros += other.zeros;
}

void PartialStats::repeat(std::uint64_t times) {
  sum *= static_cast<double>(times);
  sum_squares *= static_cast<double>(times);
  elements *= times;
  nans *= times;
  zeros *= times;
}

float float_threshold(double eps) {
  if (!(eps <= static_cast<double>(std::numeric_limits<float>::max()))) {
    return std::isnan(eps) ? 0.0F : std::numeric_limits<float>::infinity();
  }
  const float rounded = static_cast<float>(eps);
  return static_cast<double>(rounded) < eps ? std::nextafter(rounded, std::numeric_limits<float>::infinity())
                                            : rounded;
}

}  // namespace gradmon
#endif  // HWY_ONCE
