// SPDX-License-Identifier: Apache-2.0
// This file is compiled once for each instruction set: foreach_target.h includes it repeatedly.
#ifndef HWY_DISABLED_TARGETS  // vectors without a compile-time size cannot be members
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hooks/stats/stats_kernel.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/highway.h>

#include "hooks/device/zero_threshold.h"
#include "hooks/stats/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace gradmon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

#if HWY_TARGET == HWY_SCALAR  // a vector of one lane cannot hold two halves
template <class T>
std::size_t half_block(const T* data, std::size_t count, double eps, PartialStats& stats) {
  return narrow_block(data, count, eps, stats);
}
#else
using U16 = hn::Repartition<std::uint16_t, F32>;
using I16 = hn::RebindToSigned<U16>;
using Bits = hn::Vec<U16>;

HWY_INLINE Bits load_bits(const void* data) {
  return hn::LoadU(U16(), static_cast<const std::uint16_t*>(data));
}

// The elements of a Bits at `data` as two vectors of float, in any order.
HWY_INLINE void widen(const hwy::bfloat16_t* data, hn::Vec<F32>& a, hn::Vec<F32>& b) {
  const hn::RebindToUnsigned<F32> u32;
  const auto pairs = hn::BitCast(u32, load_bits(data));
  a = hn::BitCast(F32(), hn::ShiftLeft<16>(pairs));
  b = hn::BitCast(F32(), hn::And(pairs, hn::Set(u32, 0xffff0000U)));
}
HWY_INLINE void widen(const hwy::float16_t* data, hn::Vec<F32>& a, hn::Vec<F32>& b) {
  a = load(data);
  b = load(data + hn::Lanes(F32()));
}

HWY_INLINE FloatType type_of(const hwy::bfloat16_t*) { return FloatType::bfloat16; }
HWY_INLINE FloatType type_of(const hwy::float16_t*) { return FloatType::float16; }

// Minimum, maximum and count of zeros over bit patterns: as signed and as unsigned integers, values of one
// sign are in the order of their magnitudes.
struct HalfExtremes {
  using V = hn::Vec<I16>;

  V largest_signed, zeros;
  Bits largest, smallest;

  HWY_INLINE HalfExtremes()
      : largest_signed(hn::Set(I16(), std::numeric_limits<std::int16_t>::min())),
        zeros(hn::Zero(I16())),
        largest(hn::Zero(U16())),
        smallest(hn::Set(U16(), 0xffff)) {}

  // `count`: a multiple of two vectors.
  template <class T>
  HWY_INLINE void take(const T* data, std::size_t count, V threshold) {
    const I16 i16;
    const auto magnitude = hn::Set(U16(), 0x7fff);
#pragma GCC unroll 2
    for (std::size_t i = 0; i < count; i += 2 * hn::Lanes(U16())) {
      const Bits a = load_bits(data + i), b = load_bits(data + i + hn::Lanes(U16()));
      largest_signed = hn::Max(largest_signed, hn::Max(hn::BitCast(i16, a), hn::BitCast(i16, b)));
      largest = hn::Max(largest, hn::Max(a, b));
      smallest = hn::Min(smallest, hn::Min(a, b));
      for (const Bits bits : {a, b})
        zeros = hn::Sub(zeros,
                        hn::VecFromMask(i16, hn::Lt(hn::BitCast(i16, hn::And(bits, magnitude)), threshold)));
    }
  }

  HWY_INLINE void range(FloatType type, double& min, double& max) const {
    const std::int16_t highest = hn::GetLane(hn::MaxOfLanes(I16(), largest_signed));
    const std::uint16_t high = hn::GetLane(hn::MaxOfLanes(U16(), largest));
    const std::uint16_t low = hn::GetLane(hn::MinOfLanes(U16(), smallest));
    max = widened(type, highest < 0 ? low : static_cast<std::uint16_t>(highest));
    min = widened(type, high > 0x7fff ? high : low);
  }

  HWY_INLINE std::uint64_t zero_count() const {
    const hn::RebindToSigned<F32> i32;
    const auto pairs = hn::BitCast(i32, zeros);
    const auto counts = hn::Add(hn::ShiftRight<16>(pairs), hn::ShiftRight<16>(hn::ShiftLeft<16>(pairs)));
    return static_cast<std::uint64_t>(hn::GetLane(hn::SumOfLanes(i32, counts)));
  }
};

// Sums of at most kFlush vectors in float. Squares of halves are exact in float, so each addition rounds
// once: the error is at most 16 * 2^-24 (9.6e-7) of the sum of magnitudes.
constexpr std::size_t kFlush = 16;

struct FloatSums {
  using V = hn::Vec<F32>;

  V sum_a, sum_b, square_a, square_b;

  HWY_INLINE FloatSums() { sum_a = sum_b = square_a = square_b = hn::Zero(F32()); }

  HWY_INLINE void take(V a, V b) {
    sum_a = hn::Add(sum_a, a);
    sum_b = hn::Add(sum_b, b);
    square_a = hn::MulAdd(a, a, square_a);
    square_b = hn::MulAdd(b, b, square_b);
  }
};

struct HalfSums {
  hn::Vec<F64> sum, square;

  HWY_INLINE HalfSums() { sum = square = hn::Zero(F64()); }

  // `count`: a multiple of two vectors, at most 2 * kFlush.
  template <class T>
  HWY_INLINE void take(const T* data, std::size_t count) {
    FloatSums even, odd;
#pragma GCC unroll 1  // otherwise GCC 12 peels all turns and keeps sums in memory
    for (std::size_t i = 0; i < count; i += 2 * hn::Lanes(U16())) {
      hn::Vec<F32> a, b, c, d;
      widen(data + i, a, b);
      widen(data + i + hn::Lanes(U16()), c, d);
      even.take(a, b);
      odd.take(c, d);
    }
    add(even);
    add(odd);
  }

 private:
  HWY_INLINE void add(const FloatSums& sums) {
    sum = hn::Add(sum, hn::Add(hn::Add(lower(sums.sum_a), lower(sums.sum_b)),
                               hn::Add(upper(sums.sum_a), upper(sums.sum_b))));
    square = hn::Add(square, hn::Add(hn::Add(lower(sums.square_a), lower(sums.square_b)),
                                     hn::Add(upper(sums.square_a), upper(sums.square_b))));
  }
};

// Uses narrow_block for fewer elements than a turn, and for blocks whose squares do not fit float: larger
// ones overflow, smaller ones are denormal.
template <class T>
std::size_t half_block(const T* data, std::size_t count, double eps, PartialStats& stats) {
  const std::size_t lanes = hn::Lanes(U16());
  const std::size_t turn = 2 * lanes;
  const std::size_t whole = HWY_MIN(count, kBlock) / turn * turn;
  if (whole == 0) return narrow_block(data, count, eps, stats);
  const auto threshold = hn::Set(I16(), static_cast<std::int16_t>(half_threshold(type_of(data), eps)));
  HalfExtremes extremes;
  HalfSums sums;
  // Two loops over a group, which stays in the cache: one loop would need too many registers.
  for (std::size_t i = 0; i < whole;) {
    const std::size_t group = HWY_MIN(whole - i, kFlush * turn);
    extremes.take(data + i, group, threshold);
    sums.take(data + i, group);
    i += group;
  }
  const double sum = hn::GetLane(hn::SumOfLanes(F64(), sums.sum));
  double min, max;
  extremes.range(type_of(data), min, max);
  const double magnitude = HWY_MAX(max, -min);
  const bool in_range = magnitude == 0 || (magnitude > 0x1p-50 && magnitude < 0x1p58);
  if (!in_range || sum != sum) return narrow_block(data, whole, eps, stats);
  // Not PartialStats::add: GCC 12 calls it while the vectors' upper halves are in use, which costs 200 ns.
  stats.min = HWY_MIN(stats.min, min);
  stats.max = HWY_MAX(stats.max, max);
  stats.zeros += extremes.zero_count();
  stats.sum += sum;
  stats.sum_squares += hn::GetLane(hn::SumOfLanes(F64(), sums.square));
  return whole;
}
#endif

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
        block = half_block(static_cast<const hwy::float16_t*>(data) + done, left, eps, stats);
        break;
      case FloatType::bfloat16:
        block = half_block(static_cast<const hwy::bfloat16_t*>(data) + done, left, eps, stats);
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
#include <cstring>

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

std::uint16_t half_threshold(FloatType type, double eps) {
  if (!(eps > 0)) return 0;
  if (type == FloatType::bfloat16) {
    const float narrow = float_threshold(eps);
    std::uint32_t bits;
    std::memcpy(&bits, &narrow, sizeof bits);
    return static_cast<std::uint16_t>((bits + 0xffff) >> 16);
  }
  if (eps > 65504) return 0x7c00;
  const int exponent = std::max(std::ilogb(eps), -14);
  const auto fraction = static_cast<int>(std::ceil(std::ldexp(eps, 10 - exponent)));
  return static_cast<std::uint16_t>(((exponent + 14) << 10) + fraction);
}

}  // namespace gradmon
#endif  // HWY_ONCE
