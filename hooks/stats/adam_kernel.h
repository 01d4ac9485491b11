// SPDX-License-Identifier: Apache-2.0
// Histograms of Adam's update from contiguous moments, in one pass (Highway). No torch, no state, any thread.
#pragma once

#include <cstddef>

#include "writers/queue/histogram.h"

namespace gradmon {

// The bins of update = m̂ / (√v̂ + eps) and of ratio = m̂ / √v̂.
struct AdamBins {
  BinCounts update{};
  BinCounts ratio{};

  void add(const AdamBins& other);
};

// m̂ = m / first and v̂ = v / second: they are 1 - β₁ᵗ and 1 - β₂ᵗ after t steps.
struct AdamCorrections {
  double first = 1;
  double second = 1;
  double eps = 0;
};

// `first`, `second`: `count` elements of m and v, aligned for their type. Computed in double, operation by
// operation as torch does: just before a parameter's second step many ratios are ±1 but for the last bits.
// Sorted into bins as torch.histc does: trunc((x + 1) · 15), and 29 for x = 1.
AdamBins kernel_adam_bins(const float* first, const float* second, std::size_t count,
                          const AdamCorrections& corrections);
AdamBins kernel_adam_bins(const double* first, const double* second, std::size_t count,
                          const AdamCorrections& corrections);

}  // namespace gradmon
