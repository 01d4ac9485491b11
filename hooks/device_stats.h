// SPDX-License-Identifier: Apache-2.0
// The same numbers by torch's own ops, for tensors that are not in the CPU's
// memory: queued on the device, several passes where the tensor is.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <array>
#include <optional>

#include "writers/record.h"

namespace gradmon {

// Numbers that a device is going to compute; the tensor they are of is not held.
struct DeviceNumbers {
  at::Tensor sums;                    // on the device: min, max, sum, norm, nans, near zeros
  std::optional<c10::Stream> stream;  // on which they are queued; none: the device has no streams
  double elements = 0;
};

// `tensor`: strided, real, not empty, any device. Queued on the current stream,
// no waiting. To be called without gradient mode. Throws what torch throws.
DeviceNumbers device_numbers(const at::Tensor& tensor, double eps);

// Values by Op, of `sums` once they have come to the CPU, as doubles.
std::array<double, kOps> values_of(const double* sums, double elements);

}  // namespace gradmon
