// SPDX-License-Identifier: Apache-2.0
// Fetches the numbers of many tensors, with one copy and one wait per device.
#pragma once

#include <optional>
#include <vector>

#include "hooks/stats/device_scalars.h"

namespace gradmon {

// One thread at a time. Any thread may have queued the numbers.
class DeviceBatch {
 public:
  void add(PendingScalars numbers);
  void clear();

  // Waits for the numbers, returns what their `finish` returns in the order of add(), and empties the batch.
  // For each device: its current stream waits for the streams that the numbers are queued on; then one packed
  // tensor, one copy (CUDA: asynchronous, into pinned memory), one wait for the stream. Does nothing if the
  // batch is empty. Throws what torch throws.
  std::vector<std::optional<DeviceScalars::Values>> resolve();

 private:
  std::vector<PendingScalars> numbers_;
};

}  // namespace gradmon
