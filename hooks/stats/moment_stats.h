// SPDX-License-Identifier: Apache-2.0
// Statistics of a parameter's moments: histograms of Adam's update = m̂ / (√v̂ + eps) and ratio = m̂ / √v̂, with
// m̂ = m / (1 - β₁ᵗ), v̂ = v / (1 - β₂ᵗ); mg_direction, the share of places where a gradient and its momentum
// have the same sign.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "hooks/device/device_stats.h"
#include "hooks/stats/kernels.h"

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

// Sense::negated: the momentum of the negated gradient, as an optimizer with `maximize` keeps it.
enum class Sense : bool { same, negated };

// ((Σ sign g · sign m) / N + 1) / 2, g negated with Sense::negated: 1 if all signs agree, 0 if all are
// opposite. A place where either is zero or NaN counts one half (torch::sign of NaN is 0). Exact. Reads both
// tensors in one pass if they are in CPU memory with equal types and strides; otherwise uses torch's ops on
// the gradient's device. If that is not the CPU, `value` is NaN and `pending` computes it, of both tensors as
// they were at the call. nullopt: sizes differ, or why_unreadable() holds for a tensor. Throws what torch
// throws.
struct SignAgreement {
  double value = 0;
  PendingScalars pending;
};
std::optional<SignAgreement> sign_agreement(const at::Tensor& gradient, const at::Tensor& momentum,
                                            Sense sense = Sense::same);

// The version for other devices: torch's ops, queued on the gradient's device. Call it only if
// sign_agreement() accepts both tensors.
PendingScalars pending_sign_agreement(const at::Tensor& gradient, const at::Tensor& momentum,
                                      Sense sense = Sense::same);

}  // namespace gradmon
