// SPDX-License-Identifier: Apache-2.0
// Agreement of the signs of two contiguous arrays (Highway). No torch, no state, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hooks/stats/stats_kernel.h"

namespace gradmon {

// The exact sum of sign(a) · sign(b) over `count` pairs: the number of equal signs minus the number of
// opposite signs. The sign of ±0 and NaN is 0 (as in torch::sign); denormals keep their sign. `a`, `b`:
// aligned for `type`.
std::int64_t kernel_sign_agreement(FloatType type, const void* a, const void* b, std::size_t count);

}  // namespace gradmon
