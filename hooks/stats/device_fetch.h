// SPDX-License-Identifier: Apache-2.0
// Copies small tensors from devices, with one copy and one wait per device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace gradmon {

struct QueuedNumbers {
  at::Tensor numbers;                 // on any device
  std::optional<c10::Stream> stream;  // that they are queued on; unset: the device has no streams
};

// The numbers of several tensors, as doubles in CPU memory.
class HostNumbers {
 public:
  // Those of the tensor at that place, in its order; valid as long as this object.
  const double* of(std::size_t place) const { return places_[place]; }

 private:
  friend HostNumbers fetch_numbers(const std::vector<QueuedNumbers>& queued);

  std::vector<at::Tensor> memory_;
  std::vector<const double*> places_;
};

// Waits for the numbers. Those of one device must have equal sizes. For each device: its current stream waits
// for the streams that the numbers are queued on; then one packed tensor, one copy (CUDA: asynchronous, into
// pinned memory), one wait for the stream. Call it with gradient mode off. Throws what torch throws.
HostNumbers fetch_numbers(const std::vector<QueuedNumbers>& queued);

}  // namespace gradmon
