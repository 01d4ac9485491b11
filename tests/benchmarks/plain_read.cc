// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/benchmarks/plain_read.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>

#include "tests/benchmarks/measure.h"

HWY_BEFORE_NAMESPACE();
namespace gradmon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

std::uint32_t read_all(const std::uint32_t* data, std::size_t count) {
  const hn::ScalableTag<std::uint32_t> d;
  const std::size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  for (std::size_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    sum0 = hn::Add(sum0, hn::LoadU(d, data + i));
    sum1 = hn::Add(sum1, hn::LoadU(d, data + i + lanes));
    sum2 = hn::Add(sum2, hn::LoadU(d, data + i + 2 * lanes));
    sum3 = hn::Add(sum3, hn::LoadU(d, data + i + 3 * lanes));
  }
  // Not their sum: the compiler's header adds them as signed numbers, which overflow.
  return hn::GetLane(hn::MaxOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

}  // namespace HWY_NAMESPACE
}  // namespace gradmon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmon {

HWY_EXPORT(read_all);

void plain_read(const void* data, std::size_t bytes) {
  keep(
      HWY_DYNAMIC_DISPATCH(read_all)(static_cast<const std::uint32_t*>(data), bytes / sizeof(std::uint32_t)));
}

}  // namespace gradmon
#endif  // HWY_ONCE
