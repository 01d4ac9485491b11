// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace gradmon {

struct TaggedNumber {
  std::array<std::string_view, 3> tag;  // its parts, UTF-8
  float number = 0;
};

// Appends one record with the numbers from `begin` to `end`, which TensorBoard draws as curves. `wall_time`
// is in seconds since 1970. Pure.
void append_scalar_event(std::string& out, std::int64_t step, double wall_time, const TaggedNumber* begin,
                         const TaggedNumber* end);

}  // namespace gradmon
