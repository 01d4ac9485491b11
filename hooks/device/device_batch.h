// SPDX-License-Identifier: Apache-2.0
// Fetches the numbers of many tensors, with one copy per device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hooks/device/device_fetch.h"
#include "hooks/device/device_scalars.h"

namespace gradmon {

// Numbers of several tensors that a device is sending. One thread at a time, any thread.
class FetchedBatch {
 public:
  bool ready() const { return fetched_.ready(); }
  // Waits until they are ready. Returns the results of `finish`, in the order of add(). Throws what torch
  // throws.
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
  // The reason why the numbers cannot be fetched now: why_captured() of a device. "": they can.
  std::string why_not_now() const;

  // Starts to fetch the numbers as fetch_numbers() does, and empties the batch. Throws what torch throws.
  FetchedBatch fetch();
  // fetch(), then values().
  std::vector<std::optional<DeviceScalars::Values>> resolve() { return fetch().values(); }

 private:
  std::vector<PendingScalars> numbers_;
};

}  // namespace gradmon
