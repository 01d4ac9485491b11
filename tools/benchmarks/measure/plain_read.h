// SPDX-License-Identifier: Apache-2.0
// The least that looking at memory can cost: every byte is loaded once, by
// vectors as wide as those of hooks/stats_kernel, and added up.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradmon {

// `data`: aligned for floats. The sum of its whole vectors as 32-bit numbers. Any thread.
std::uint32_t plain_read(const void* data, std::size_t bytes);

}  // namespace gradmon
