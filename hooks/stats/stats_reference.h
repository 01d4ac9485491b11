// SPDX-License-Identifier: Apache-2.0
// The same numbers as stats_kernel by one plain loop: the kernel's last few
// elements, and what the tests compare it with. Any thread.
#pragma once

#include <cstddef>

#include "hooks/stats/stats_kernel.h"

namespace gradmon {

PartialStats reference_stats(FloatType type, const void* data, std::size_t count, double eps);

}  // namespace gradmon
