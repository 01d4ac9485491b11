// SPDX-License-Identifier: Apache-2.0
// Histograms of Adam's update of one parameter: update = m̂ / (√v̂ + eps) and ratio = m̂ / √v̂, with
// m̂ = m / (1 - β₁ᵗ), v̂ = v / (1 - β₂ᵗ).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "hooks/stats/adam_kernel.h"

namespace gradmon {

// Adam's per-parameter state other than m and v.
struct AdamStep {
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double steps = 0;              // t: the steps in the moments. Meaningless if the next is defined
  at::Tensor device_steps = {};  // t, of one element, on a device
};

// Histograms that a device may still be counting.
struct AdamHistograms {
  AdamBins bins;                      // valid if `pending` is undefined
  at::Tensor pending;                 // of double, [2, kBins]: update, ratio
  std::optional<c10::Stream> stream;  // of `pending`; unset: the device has no streams
};

// Uses the current values of the moments. In CPU memory: in double, in one pass, large tensors on torch's
// threads; the result does not depend on their number. On other devices: queues torch's ops, in double, at
// most  2²² elements at a time. The error is the reason for no histograms: the sizes differ, or
// why_unreadable() holds for a moment. Throws what torch throws.
tl::expected<AdamHistograms, std::string> adam_histograms(const at::Tensor& first, const at::Tensor& second,
                                                          const AdamStep& step);

// The version for other devices, `pending` alone; works on the CPU, too. Call it with gradient mode off.
at::Tensor pending_adam_histograms(const at::Tensor& first, const at::Tensor& second, const AdamStep& step);

// Waits for all `pending`, with one copy and one wait for each device, and sets `bins`.
void resolve_pending(const std::vector<AdamHistograms*>& histograms);

}  // namespace gradmon
