// SPDX-License-Identifier: Apache-2.0
// Fetches the numbers of many tensors, with one copy per device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hooks/device/device_fetch.h"
#include "hooks/device/device_scalars.h"

namespace gradmon {

// Numbers of several tensors that are on their way. One thread at a time, any thread.
class FetchedBatch {
 public:
  bool ready() const { return fetched_.ready(); }
  // Waits if they are not ready, and returns what their `finish` returns in the order of add(). Throws what
  // torch throws.
  std::vector<std::optional<DeviceScalars::Values>> values() const;

 private:
  friend class DeviceBatch;

  std::vector<PendingScalars> numbers_;
  HostNumbers fetched_;
};

// One thread at a time. Any thread may have queued the numbers.
class DeviceBatch {
 public:
  void add(PendingScalars numbers);
  void clear();
  // Why the numbers cannot be fetched now: why_captured() of a device. "": they can.
  std::string why_not_now() const;

  // Starts to fetch the numbers as fetch_numbers() does, and empties the batch. Throws what torch throws.
  FetchedBatch fetch();
  // fetch(), then values().
  std::vector<std::optional<DeviceScalars::Values>> resolve() { return fetch().values(); }

 private:
  std::vector<PendingScalars> numbers_;
};

}  // namespace gradmon
