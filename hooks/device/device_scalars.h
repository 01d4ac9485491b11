// SPDX-License-Identifier: Apache-2.0
// Numbers that a device is still computing.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "control/vocabulary.h"

namespace gradmon {

// Numbers queued on a device. Keeps no reference to the tensors that they are computed from.
struct DeviceScalars {
  using Values = std::array<double, kOps>;
  // Computes the values from the numbers once they are on the CPU, as doubles; empty: see `why_absent`.
  using Finish = std::optional<Values> (*)(const double* numbers, double elements);

  at::Tensor numbers;                 // kOps numbers, on the device; the last may be unused
  std::optional<c10::Stream> stream;  // that computes them; unset: the device has no streams
  double elements = 0;                // second argument of `finish`
  Finish finish = nullptr;
  const char* why_absent = "";  // why `finish` returns nothing; not owned
  // Not null: the address to which the device writes them, in place of `numbers`. Pinned memory.
  std::shared_ptr<const double> on_host = {};
};

using PendingScalars = std::shared_ptr<const DeviceScalars>;

// The stream carrying the work just queued for the device.
std::optional<c10::Stream> current_stream(const c10::Device& device);

// Packs one to kOps 0-D tensors of one device. Queued on the current stream; does not wait. Throws what
// torch throws.
PendingScalars pack_scalars(const std::vector<at::Tensor>& scalars, double elements,
                            DeviceScalars::Finish finish, const char* why_absent = "");

}  // namespace gradmon
