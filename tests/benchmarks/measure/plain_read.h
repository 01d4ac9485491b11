// SPDX-License-Identifier: Apache-2.0
// The minimum cost of reading memory: loads every byte once, by vectors as wide as those of
// hooks/stats/stats_kernel, and adds them up.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradmon {

// `data`: aligned for floats. Returns a number that depends on all of it but a rest of less than four
// vectors. Any thread.
std::uint32_t plain_read(const void* data, std::size_t bytes);

}  // namespace gradmon
