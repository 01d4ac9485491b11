// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/analyse/first_not_finite.h"

namespace gradmon {

// A row that owns its texts.
struct Sample {
  std::int64_t step = 0;
  std::int32_t micro_step = -1;
  std::int32_t vpp_stage = 0;
  std::string name;
  std::array<double, kFields> values{};
  std::uint32_t mask = 0;
};

// The surroundings of a value that is not finite.
struct NotFiniteContext {
  struct Count {
    std::uint64_t rows = 0;
    std::uint64_t not_finite = 0;
  };
  std::vector<Sample>
      history;  // the same tensor and rank: up to kBefore steps before, the step, kAfter after
  std::vector<Sample> neighbours;  // the step's rows before and after it in the file, of the same micro step
  std::size_t place = 0;           // of the row in `neighbours`
  std::map<int, bool> ranks;       // other ranks with a row of the tensor in the step; true: it is not finite
  std::map<std::int64_t, Count> spread;  // by step, over all ranks and kinds: the step and those after it
};

inline constexpr std::size_t kBefore = 5;
inline constexpr std::size_t kAfter = 2;
inline constexpr std::size_t kNeighbours = 3;  // before, and after

// Reads the files of the run around `found.first`, which must be set, once more.
NotFiniteContext context_of(const Run& run, const FirstNotFinite& found, Problems& problems);

}  // namespace gradmon
