// SPDX-License-Identifier: Apache-2.0
// The statistics of tensor_stats.h by torch's ops, for tensors outside CPU memory: several passes, queued on
// the tensor's device.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "hooks/device/device_scalars.h"

namespace gradmon {

// The values by Op of six numbers: min, max, sum, norm, count of NaN, count of zeros. min and max are NaN if
// there is a NaN.
std::optional<DeviceScalars::Values> values_of_numbers(const double* numbers, double elements);

// The values by Op. `tensor`: strided, real, not empty, on any device. Queued on the current stream; does not
// wait. Call with gradient mode off. Throws what torch throws.
PendingScalars device_stats(const at::Tensor& tensor, double eps);

// The values of several tensors of one device, each from device_stats(), as the values of one tensor. The
// same rules hold.
PendingScalars folded_stats(const std::vector<PendingScalars>& parts);

}  // namespace gradmon
