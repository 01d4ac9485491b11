// SPDX-License-Identifier: Apache-2.0
// The statistics of stats_kernel.h in one scalar loop. The kernel uses it for the last few elements; the
// tests compare the kernel with it. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hooks/stats/stats_kernel.h"

namespace gradmon {

// The value of a float16 or bfloat16 with these bits.
double widened(FloatType type, std::uint16_t bits);

PartialStats reference_stats(FloatType type, const void* data, std::size_t count, double eps);

}  // namespace gradmon
