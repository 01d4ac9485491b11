// SPDX-License-Identifier: Apache-2.0
// Types that the public headers share. Standard library only; every folder may include it.
#pragma once

#include <cstdint>

namespace gradmon {

// Number of a plan within one epoch, strictly increasing from 1; 0 is "none".
struct Revision {
  std::uint64_t value = 0;

  friend constexpr bool operator==(Revision a, Revision b) { return a.value == b.value; }
  friend constexpr bool operator!=(Revision a, Revision b) { return a.value != b.value; }
  friend constexpr bool operator<(Revision a, Revision b) { return a.value < b.value; }
  friend constexpr bool operator<=(Revision a, Revision b) { return a.value <= b.value; }
  friend constexpr bool operator>(Revision a, Revision b) { return a.value > b.value; }
  friend constexpr bool operator>=(Revision a, Revision b) { return a.value >= b.value; }
};

// Index of a training process, 0 … world size − 1.
struct Rank {
  int value = 0;

  friend constexpr bool operator==(Rank a, Rank b) { return a.value == b.value; }
  friend constexpr bool operator!=(Rank a, Rank b) { return a.value != b.value; }
  friend constexpr bool operator<(Rank a, Rank b) { return a.value < b.value; }
};

// Wall-clock time, for people: milliseconds since 1970, UTC.
using WallTime = std::int64_t;

// yes: query i of an attention sees only the keys 0 … i.
enum class Causal : bool { no, yes };

}  // namespace gradmon
