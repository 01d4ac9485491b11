// SPDX-License-Identifier: Apache-2.0
// Numbers on their way from a device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "control/vocabulary.h"

namespace gradmon {

// Numbers that a device is going to compute; the tensors they are of are not held.
struct DeviceNumbers {
  using Values = std::array<double, kOps>;
  // What is made of them once they have come to the CPU, as doubles.
  using Finish = Values (*)(const double* numbers, double elements);

  at::Tensor numbers;                 // on the device: kOps of them, the last unused where there are fewer
  std::optional<c10::Stream> stream;  // on which they are queued; none: the device has no streams
  double elements = 0;                // what else `finish` is to know
  Finish finish = nullptr;
};

using PendingNumbers = std::shared_ptr<const DeviceNumbers>;

// The stream carrying the work just queued for the device.
std::optional<c10::Stream> current_stream(const c10::Device& device);

// Tensors of no dimension, on one device, one to kOps of them; queued on the
// current stream, no waiting. Throws what torch throws.
PendingNumbers pending_numbers(const std::vector<at::Tensor>& scalars, double elements,
                               DeviceNumbers::Finish finish);

}  // namespace gradmon
