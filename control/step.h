// SPDX-License-Identifier: Apache-2.0
// The type Step, beside the public types Revision and Rank. Every folder may include it.
#pragma once

#include <cstdint>
#include <limits>

#include "gradmon/types.h"  // IWYU pragma: export

namespace gradmon {

// One iteration of the training loop, counted from start_iteration; the same
// number names the same iteration on every rank.
struct Step {
  std::int64_t value = 0;

  friend constexpr bool operator==(Step a, Step b) { return a.value == b.value; }
  friend constexpr bool operator!=(Step a, Step b) { return a.value != b.value; }
  friend constexpr bool operator<(Step a, Step b) { return a.value < b.value; }
  friend constexpr bool operator<=(Step a, Step b) { return a.value <= b.value; }
  friend constexpr bool operator>(Step a, Step b) { return a.value > b.value; }
  friend constexpr bool operator>=(Step a, Step b) { return a.value >= b.value; }
  // Saturates at kNever, which is later than any step of a job.
  friend constexpr Step operator+(Step a, std::int64_t n) {
    constexpr auto never = std::numeric_limits<std::int64_t>::max();
    return n > 0 && a.value > never - n ? Step{never} : Step{a.value + n};
  }
  friend constexpr std::int64_t operator-(Step a, Step b) { return a.value - b.value; }
};

inline constexpr Step kNever{std::numeric_limits<std::int64_t>::max()};

}  // namespace gradmon
