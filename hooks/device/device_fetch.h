// SPDX-License-Identifier: Apache-2.0
// Copies small tensors from devices, with one copy per device, and can wait for them later.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hooks/device/device_stats.h"

namespace gradmon {

// One of the streams of a torch pool, in turns (CUDA: of 32). If torch (>= 2.6) and the device have one, the
// pool is one that neither programs nor communication libraries use: on a shared stream, their work and ours
// would wait for each other. nullopt: the device has no pools. Any thread.
std::optional<c10::Stream> own_stream(const c10::Device& device);

struct QueuedNumbers {
  at::Tensor numbers;                 // doubles or floats, on any device
  std::optional<c10::Stream> stream;  // that computes them; unset: the device has no streams
  // Not null: the address to which the stream's work writes them, in place of `numbers`.
  std::shared_ptr<const double> on_host = {};
};

// Recorded events. Their device is current during each query and destruction: otherwise the thread would get
// a context on its own current device, which takes half a gigabyte there.
class AwaitedEvents {
 public:
  AwaitedEvents() = default;
  AwaitedEvents(AwaitedEvents&&) = default;
  AwaitedEvents& operator=(AwaitedEvents&&) = default;
  ~AwaitedEvents();

  void record(const c10::Stream& stream);
  // True if all events have passed. Throws what torch throws.
  bool passed();

 private:
  std::vector<c10::Event> events_;  // not passed yet
};

// The numbers of several tensors, as doubles, copied to CPU memory. One thread at a time, any thread.
class HostNumbers {
 public:
  // True if all numbers have arrived. Does not wait. Throws what torch throws if the device has failed.
  bool ready() const;
  // Sleeps until they have arrived.
  void wait() const;
  // The numbers of the tensor at `place`, in order, once ready(); valid as long as this object.
  const double* of(std::size_t place) const { return places_[place]; }

 private:
  friend HostNumbers fetch_numbers(const std::vector<QueuedNumbers>& queued);

  std::vector<at::Tensor> memory_;
  std::vector<std::shared_ptr<const double>> written_;
  std::vector<const double*> places_;
  mutable std::vector<std::pair<at::Tensor, at::Tensor>>
      floats_;  // copied to the doubles once they have arrived
  mutable AwaitedEvents events_;
};

// Starts to fetch the numbers. The numbers on one device that are not `on_host` must have equal sizes. For
// each device: one packed tensor and one copy (asynchronous, into pinned memory; the call waits for the copy
// from a device without streams, events or such memory), on the current stream if it computes all of them,
// otherwise on a stream that waits for their streams. Call it with gradient mode off. Throws what torch
// throws.
HostNumbers fetch_numbers(const std::vector<QueuedNumbers>& queued);

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
