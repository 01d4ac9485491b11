// SPDX-License-Identifier: Apache-2.0
// The largest singular value of a weight matrix on a device, without waiting for the device.
#pragma once

#include <ATen/core/Tensor.h>

#include "hooks/device/device_scalars.h"

namespace gradmon {

// The version of weight_spectrum.h for other devices. Takes a fixed number of products, because a test for
// convergence would wait for the device: one Lanczos run of kDeviceProducts products that starts at `vector`.
// The numbers are sr and kernel_norm, in this order; there are none unless ‖WᵀWx − θx‖ ≤ 1e-5 · θ (see
// weight_spectrum.h). kernel_norm is never too high, and right to 5e-6 (rarely of the second singular value,
// as there). A run that starts at the vector of the previous run, on a slightly different weight, goes on
// where that run stopped.
//
// `weight`: 2-D, strided, real, not empty, of any floating type. `vector`: doubles on the weight's device,
// with the size of the shorter side and the norm 1; replaced by the singular vector found (NaN if the weight
// is not finite). Memory until the device is done: 48 vectors, and a copy of the weight in float32 (double
// weight: double). Queued on the current stream. Call with gradient mode off. Throws what torch throws.
inline constexpr int kDeviceProducts = 48;
PendingScalars pending_spectrum(const at::Tensor& weight, at::Tensor& vector);

}  // namespace gradmon
