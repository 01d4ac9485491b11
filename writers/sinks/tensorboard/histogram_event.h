// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "control/step.h"

namespace gradmon {

// The numbers of values in the bins of equal width that divide [-1, 1], as torch.histc counts them.
inline constexpr std::size_t kBins = 30;
using BinCounts = std::array<std::uint64_t, kBins>;

// A record that TensorBoard shows as a histogram. `tag` is UTF-8. `min` and `max` are the edges of the bins
// that have values: TensorBoard draws the outermost of these bins up to there. `sum` and `sum_squares` are
// those of the bins' centres, because the values themselves are not known. Pure.
std::string histogram_record(std::string_view tag, const BinCounts& counts, Step step, double wall_time);

}  // namespace gradmon
