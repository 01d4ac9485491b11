// SPDX-License-Identifier: Apache-2.0
// This file is compiled once for each instruction set: foreach_target.h includes it repeatedly.
#ifndef HWY_DISABLED_TARGETS  // vectors without a compile-time size cannot be members
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hooks/stats/sign_kernel.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <array>
#include <cstring>

#include "hooks/stats/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace gradmon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kAhead = 2048;                  // distance of the prefetch, bytes
constexpr std::size_t kPairs = std::size_t{1} << 24;  // summed in lanes at most, so that no lane overflows

using I32 = hn::ScalableTag<std::int32_t>;
using I64 = hn::ScalableTag<std::int64_t>;

HWY_INLINE hn::Vec<I32> bits_at(const std::int32_t* data) { return hn::LoadU(I32(), data); }
HWY_INLINE hn::Vec<I64> bits_at(const std::int64_t* data) { return hn::LoadU(I64(), data); }
// The 16 bits in the upper half of the lane, so that the sign bit is in its place.
HWY_INLINE hn::Vec<I32> bits_at(const std::uint16_t* data) {
  const hn::RebindToUnsigned<I32> u32;
  const auto narrow = hn::LoadU(hn::Rebind<std::uint16_t, I32>(), data);
  return hn::BitCast(I32(), hn::ShiftLeft<16>(hn::PromoteTo(u32, narrow)));
}

// sign(a) · sign(b) from the bits: comparing as floats would depend on whether denormals are flushed.
template <class D>
HWY_INLINE hn::Vec<D> product(hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> infinity) {
  using T = hn::TFromD<D>;
  const D d;
  const auto magnitude = hn::Set(d, hwy::LimitsMax<T>());
  const auto zero = hn::Zero(d);
  const auto size_a = hn::And(a, magnitude);
  const auto size_b = hn::And(b, magnitude);
  const auto larger = hn::Max(size_a, size_b);
  const auto smaller = hn::Min(size_a, size_b);
  const auto outside =
      hn::Or(hn::VecFromMask(d, hn::Gt(larger, infinity)), hn::VecFromMask(d, hn::Eq(smaller, zero)));
  const auto sign = hn::ShiftRight<8 * sizeof(T) - 1>(hn::Xor(a, b));
  return hn::AndNot(outside, hn::Or(sign, hn::Set(d, 1)));
}

template <class D, class T>
std::int64_t agreement(const T* a, const T* b, std::size_t count, hn::TFromD<D> infinity_bits) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  const auto infinity = hn::Set(d, infinity_bits);
  std::int64_t total = 0;
  while (count >= lanes) {
    const std::size_t block = HWY_MIN(count, kPairs) / lanes * lanes;
    auto even = hn::Zero(d);
    auto odd = hn::Zero(d);
    std::size_t i = 0;
    for (; i + 2 * lanes <= block; i += 2 * lanes) {
      hwy::Prefetch(a + i + kAhead / sizeof(T));
      hwy::Prefetch(b + i + kAhead / sizeof(T));
      even = hn::Add(even, product<D>(bits_at(a + i), bits_at(b + i), infinity));
      odd = hn::Add(odd, product<D>(bits_at(a + i + lanes), bits_at(b + i + lanes), infinity));
    }
    if (i < block) even = hn::Add(even, product<D>(bits_at(a + i), bits_at(b + i), infinity));
    total += hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
    a += block;
    b += block;
    count -= block;
  }
  // The zeros after the rest add nothing.
  std::array<T, hn::MaxLanes(D())> rest_a{}, rest_b{};
  if (count == 0) return total;
  std::memcpy(rest_a.data(), a, count * sizeof(T));
  std::memcpy(rest_b.data(), b, count * sizeof(T));
  const auto last = product<D>(bits_at(rest_a.data()), bits_at(rest_b.data()), infinity);
  return total + hn::GetLane(hn::SumOfLanes(d, last));
}

std::int64_t target_agreement(FloatType type, const void* a, const void* b, std::size_t count) {
  switch (type) {
    case FloatType::float32:
      return agreement<I32>(static_cast<const std::int32_t*>(a), static_cast<const std::int32_t*>(b), count,
                            0x7f800000);
    case FloatType::float64:
      return agreement<I64>(static_cast<const std::int64_t*>(a), static_cast<const std::int64_t*>(b), count,
                            0x7ff0000000000000);
    case FloatType::float16:
      return agreement<I32>(static_cast<const std::uint16_t*>(a), static_cast<const std::uint16_t*>(b), count,
                            0x7c000000);
    case FloatType::bfloat16:
      return agreement<I32>(static_cast<const std::uint16_t*>(a), static_cast<const std::uint16_t*>(b), count,
                            0x7f800000);
  }
  return 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace gradmon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace gradmon {

HWY_EXPORT(target_agreement);

std::int64_t kernel_sign_agreement(FloatType type, const void* a, const void* b, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(target_agreement)(type, a, b, count);
}

}  // namespace gradmon
#endif  // HWY_ONCE
