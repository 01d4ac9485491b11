// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "control/vocabulary.h"

namespace gradmon {

// The numbers of values in the bins of equal width that divide [-1, 1], as torch.histc counts them. Bin i has
// the values from 2i/30 - 1 up to, but not including, 2(i + 1)/30 - 1; the last bin includes 1. NaN and
// values outside [-1, 1] are in no bin.
inline constexpr std::size_t kBins = 30;
using BinCounts = std::array<std::uint64_t, kBins>;

// One measurement that is too large for a Record. Hooks make it, the writer thread writes it.
struct Histogram {
  std::int64_t step = 0;
  std::uint64_t revision = 0;
  BinCounts counts{};
  std::uint32_t target = 0;  // NameTable id of the parameter
  Kind kind = Kind::update;  // is_histogram()
};
static_assert(std::is_trivially_copyable_v<Histogram>);

}  // namespace gradmon
