// SPDX-License-Identifier: Apache-2.0
// mg_direction: the share of places where a gradient and its momentum have the same sign.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "hooks/device/device_scalars.h"

namespace gradmon {

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
