// SPDX-License-Identifier: Apache-2.0
// The largest singular value of a weight matrix on a device, without waiting for the device.
#pragma once

#include <ATen/core/Tensor.h>

#include "hooks/stats/device_numbers.h"

namespace gradmon {

// The version of weight_spectrum.h for other devices. Takes a fixed number of products, because a test for
// convergence would wait for the device: one Lanczos run of kDeviceProducts products that starts at `vector`.
// The result is a lower bound, right to 1e-6 if the previous run, on a slightly different weight, had found
// the largest singular value. The numbers are sr and kernel_norm, in this order.
//
// `weight`: 2-D, strided, real, not empty, of any floating type. `vector`: doubles on the weight's device,
// with the size of the shorter side and the norm 1; replaced by the singular vector found (NaN if the weight
// is not finite). Memory until the device is done: 48 vectors, and a copy of the weight in float32 (double
// weight: double). Queued on the current stream. Call with gradient mode off. Throws what torch throws.
inline constexpr int kDeviceProducts = 48;
PendingNumbers pending_spectrum(const at::Tensor& weight, at::Tensor& vector);

}  // namespace gradmon
