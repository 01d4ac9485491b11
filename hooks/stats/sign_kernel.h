// SPDX-License-Identifier: Apache-2.0
// In how many places the numbers of two runs of memory have the same sign. No
// torch, no state, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hooks/stats/stats_kernel.h"

namespace gradmon {

// The sum of sign(a) · sign(b) over `count` pairs, exactly: places that agree
// less those that differ. Zeros of either sign and NaN have the sign 0 (as
// torch::sign gives it), denormal numbers their own. `a`, `b`: aligned for `type`.
std::int64_t kernel_sign_agreement(FloatType type, const void* a, const void* b, std::size_t count);

}  // namespace gradmon
