// SPDX-License-Identifier: Apache-2.0
// The largest singular value of a weight matrix on a device, without waiting for it.
#pragma once

#include <ATen/core/Tensor.h>

#include "hooks/stats/device_numbers.h"

namespace gradmon {

// What weight_spectrum.h does, in so many products and not until it is found,
// because to look would be to wait: one run of Lanczos of kDeviceProducts
// products from `vector`, of which the best is taken (a lower bound, and right to
// 1e-6 where the run before, on a weight little different, found it). The
// numbers are sr and kernel_norm, in this order.
//
// `weight`: 2-D, strided, real, not empty, of any floating type. `vector`: of
// doubles, of length 1 and as long as the shorter side, on the weight's device;
// becomes the one found, NaN where the weight is not finite. Memory: 48 vectors
// and a copy of the weight in float32 (double: double) until the device is done.
// Queued on the current stream. To be called without gradient mode. Throws what
// torch throws.
inline constexpr int kDeviceProducts = 48;
PendingNumbers pending_spectrum(const at::Tensor& weight, at::Tensor& vector);

}  // namespace gradmon
