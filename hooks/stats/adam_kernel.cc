// SPDX-License-Identifier: Apache-2.0
// This file is compiled once for each instruction set: foreach_target.h includes it repeatedly.
#ifndef HWY_DISABLED_TARGETS  // vectors without a compile-time size cannot be members
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hooks/stats/adam_kernel.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/highway.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "hooks/stats/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace gradmon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F64 = hn::ScalableTag<double>;
using I32 = hn::Rebind<std::int32_t, F64>;

constexpr std::size_t kBlock = 256;    // elements whose bins are found before they are counted
constexpr std::size_t kCounters = 32;  // the bins, and one for values outside all bins
// Elements that are counted in 32 bits at most.
constexpr std::size_t kCounted = std::size_t{1} << 30;

// Counts in four arrays by turns, because neighbours often share a bin and would wait for each other.
class Counts {
 public:
  void take(const std::int32_t* bins, std::size_t count) {
    std::size_t i = 0;
    for (; i + 4 <= count; i += 4) {
      for (std::size_t lane = 0; lane < 4; ++lane) ++counts_[lane][static_cast<std::size_t>(bins[i + lane])];
    }
    for (; i < count; ++i) ++counts_[0][static_cast<std::size_t>(bins[i])];
  }

  void move_to(BinCounts& sum) {
    for (auto& lane : counts_) {
      for (std::size_t bin = 0; bin < kBins; ++bin) sum[bin] += lane[bin];
      lane.fill(0);
    }
  }

 private:
  std::array<std::array<std::uint32_t, kCounters>, 4> counts_{};
};

HWY_INLINE hn::Vec<F64> load(const float* data) {
  return hn::PromoteTo(F64(), hn::LoadU(hn::Rebind<float, F64>(), data));
}
HWY_INLINE hn::Vec<F64> load(const double* data) { return hn::LoadU(F64(), data); }

// kBins for a value outside all bins.
HWY_INLINE hn::Vec<I32> bin_of(hn::Vec<F64> x) {
  const F64 d;
  const auto one = hn::Set(d, 1.0);
  const auto place = hn::Mul(hn::Add(x, one), hn::Set(d, kBins / 2.0));
  const auto bin = hn::Min(place, hn::Set(d, kBins - 1.0));
  return hn::DemoteTo(I32(), hn::IfThenElse(hn::Le(hn::Abs(x), one), bin, hn::Set(d, kBins)));
}

// The bins of a block, one vector after the other.
struct BlockBins {
  std::array<std::int32_t, kBlock> update, ratio;

  template <class T>
  HWY_INLINE void find(const T* first, const T* second, std::size_t place,
                       const AdamCorrections& corrections) {
    const F64 d;
    const auto mean = hn::Div(load(first), hn::Set(d, corrections.first));
    const auto root = hn::Sqrt(hn::Div(load(second), hn::Set(d, corrections.second)));
    hn::StoreU(bin_of(hn::Div(mean, hn::Add(root, hn::Set(d, corrections.eps)))), I32(),
               update.data() + place);
    hn::StoreU(bin_of(hn::Div(mean, root)), I32(), ratio.data() + place);
  }
};

template <class T>
void count_block(const T* first, const T* second, std::size_t count, const AdamCorrections& corrections,
                 Counts& update, Counts& ratio) {
  const std::size_t lanes = hn::Lanes(F64());
  BlockBins bins;
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) bins.find(first + i, second + i, i, corrections);
  update.take(bins.update.data(), i);
  ratio.take(bins.ratio.data(), i);
  if (i == count) return;
  std::array<T, hn::MaxLanes(F64())> rest_first{}, rest_second{};
  std::memcpy(rest_first.data(), first + i, (count - i) * sizeof(T));
  std::memcpy(rest_second.data(), second + i, (count - i) * sizeof(T));
  bins.find(rest_first.data(), rest_second.data(), 0, corrections);
  update.take(bins.update.data(), count - i);
  ratio.take(bins.ratio.data(), count - i);
}

template <class T>
AdamBins target_bins(const T* first, const T* second, std::size_t count, const AdamCorrections& corrections) {
  AdamBins bins;
  Counts update, ratio;
  std::size_t counted = 0;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t size = HWY_MIN(kBlock, count - begin);
    count_block(first + begin, second + begin, size, corrections, update, ratio);
    counted += size;
    if (counted < kCounted) continue;
    counted = 0;
    update.move_to(bins.update);
    ratio.move_to(bins.ratio);
  }
  update.move_to(bins.update);
  ratio.move_to(bins.ratio);
  return bins;
}

AdamBins float_bins(const float* first, const float* second, std::size_t count,
                    const AdamCorrections& corrections) {
  return target_bins(first, second, count, corrections);
}
AdamBins double_bins(const double* first, const double* second, std::size_t count,
                     const AdamCorrections& corrections) {
  return target_bins(first, second, count, corrections);
}

}  // namespace HWY_NAMESPACE
}  // namespace gradmon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace gradmon {

HWY_EXPORT(float_bins);
HWY_EXPORT(double_bins);

AdamBins kernel_adam_bins(const float* first, const float* second, std::size_t count,
                          const AdamCorrections& corrections) {
  return HWY_DYNAMIC_DISPATCH(float_bins)(first, second, count, corrections);
}

AdamBins kernel_adam_bins(const double* first, const double* second, std::size_t count,
                          const AdamCorrections& corrections) {
  return HWY_DYNAMIC_DISPATCH(double_bins)(first, second, count, corrections);
}

void AdamBins::add(const AdamBins& other) {
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    update[bin] += other.update[bin];
    ratio[bin] += other.ratio[bin];
  }
}

}  // namespace gradmon
#endif  // HWY_ONCE
