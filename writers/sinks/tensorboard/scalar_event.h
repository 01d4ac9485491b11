// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradmon {

// One number with its tag, which is UTF-8 and given in three parts.
struct TaggedNumber {
  std::string_view target, micro_step, suffix;
  float number = 0;
};

// Appends one record with the numbers from `begin` to `end`, which TensorBoard draws as curves. `wall_time`
// is in seconds since 1970. Pure.
void append_scalar_event(std::string& out, std::int64_t step, double wall_time, const TaggedNumber* begin,
                         const TaggedNumber* end);

}  // namespace gradmon
