// SPDX-License-Identifier: Apache-2.0
// mg_direction of one gradient and its momentum.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace gradmon {

// ((Σ sign g · sign m) / N + 1) / 2: 1 where all signs agree, 0 where all are
// opposed; a place in which either is zero or NaN (whose sign torch::sign takes
// for 0) counts one half. Exact, from one pass over both where they lie alike in
// the CPU's memory, else by torch's ops where the gradient is. None: sizes
// differ, no elements, complex, sparse or without memory. Throws what torch throws.
std::optional<double> sign_agreement(const at::Tensor& gradient, const at::Tensor& momentum);

}  // namespace gradmon
