// SPDX-License-Identifier: Apache-2.0
// mg_direction of one gradient and its momentum.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "hooks/stats/device_numbers.h"

namespace gradmon {

// ((Σ sign g · sign m) / N + 1) / 2: 1 where all signs agree, 0 where all are
// opposed; a place in which either is zero or NaN (whose sign torch::sign takes
// for 0) counts one half. Exact, from one pass over both where they lie alike in
// the CPU's memory, else by torch's ops where the gradient is: on another device
// it is pending (value is NaN until then), of both tensors as they were. None:
// sizes differ, no elements, complex, sparse or without memory. Throws what torch
// throws.
struct SignAgreement {
  double value = 0;
  PendingNumbers pending;
};
std::optional<SignAgreement> sign_agreement(const at::Tensor& gradient, const at::Tensor& momentum);

// By torch's ops, queued where the gradient is. Both as they have to be above.
PendingNumbers pending_sign_agreement(const at::Tensor& gradient, const at::Tensor& momentum);

}  // namespace gradmon
