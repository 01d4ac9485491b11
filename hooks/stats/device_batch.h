// SPDX-License-Identifier: Apache-2.0
// Many tensors' numbers from their devices, with one copy and one wait each.
#pragma once

#include <vector>

#include "hooks/stats/device_numbers.h"

namespace gradmon {

// Training thread; gathered from any.
class DeviceBatch {
 public:
  void add(PendingNumbers numbers);
  void clear();

  // What each makes of its numbers, in the order of add(), which is then forgotten. For each
  // device: one packed tensor, one asynchronous copy into pinned memory (where
  // the device has that), one wait for the current stream, which has first been
  // made to wait for the streams on which the numbers are queued. Nothing at all
  // where nothing was added. Throws what torch throws.
  std::vector<DeviceNumbers::Values> resolve();

 private:
  std::vector<PendingNumbers> numbers_;
};

}  // namespace gradmon
