// SPDX-License-Identifier: Apache-2.0
// Many tensors' numbers from their devices, with one copy and one wait each.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "writers/record.h"

namespace gradmon {

struct DeviceNumbers;

// Training thread; gathered from any.
class DeviceBatch {
 public:
  void add(std::shared_ptr<const DeviceNumbers> numbers);
  void clear();

  // Values by Op, in the order of add(), which is then forgotten. For each
  // device: one packed tensor, one asynchronous copy into pinned memory (where
  // the device has that), one wait for the current stream, which has first been
  // made to wait for the streams on which the numbers are queued. Nothing at all
  // where nothing was added. Throws what torch throws.
  std::vector<std::array<double, kOps>> resolve();

 private:
  std::vector<std::shared_ptr<const DeviceNumbers>> numbers_;
};

}  // namespace gradmon
