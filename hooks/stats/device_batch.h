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

  // Waits for the numbers as fetch_numbers() does, returns what their `finish` returns in the order of add(),
  // and empties the batch. Does nothing if the batch is empty. Throws what torch throws.
  std::vector<std::optional<DeviceScalars::Values>> resolve();

 private:
  std::vector<PendingScalars> numbers_;
};

}  // namespace gradmon
