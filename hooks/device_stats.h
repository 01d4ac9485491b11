// SPDX-License-Identifier: Apache-2.0
// The same numbers by torch's own ops, for tensors that are not in the CPU's
// memory: several passes where the tensor is, one copy of six numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "writers/record.h"

namespace gradmon {

// `tensor`: strided, real, not empty, any device. Values by Op. Waits for the
// device; to be called without gradient mode. Throws what torch throws.
std::array<double, kOps> device_stats(const at::Tensor& tensor, double eps);

}  // namespace gradmon
