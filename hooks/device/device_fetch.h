// SPDX-License-Identifier: Apache-2.0
// Copies small tensors from devices, with one copy per device, and waits for them when it suits.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace gradmon {

struct QueuedNumbers {
  at::Tensor numbers;                 // on any device
  std::optional<c10::Stream> stream;  // that they are queued on; unset: the device has no streams
  // Not null: where the stream's work writes them, in place of `numbers`.
  std::shared_ptr<const double> on_host = {};
};

// Events that have been recorded. Their device is the current one while they are asked and destroyed:
// otherwise the thread would get a context on its own current device, which takes half a gigabyte of that.
class AwaitedEvents {
 public:
  AwaitedEvents() = default;
  AwaitedEvents(AwaitedEvents&&) = default;
  AwaitedEvents& operator=(AwaitedEvents&&) = default;
  ~AwaitedEvents();

  void record(const c10::Stream& stream);
  // Whether all have passed. Throws what torch throws.
  bool passed();

 private:
  std::vector<c10::Event> events_;  // that have not passed
};

// The numbers of several tensors, as doubles, on their way to CPU memory. One thread at a time, any thread.
class HostNumbers {
 public:
  // Whether all have arrived. Does not wait. Throws what torch throws if the device has failed.
  bool ready() const;
  // Sleeps until they have arrived.
  void wait() const;
  // Those of the tensor at that place, in its order, once they are ready; valid as long as this object.
  const double* of(std::size_t place) const { return places_[place]; }

 private:
  friend HostNumbers fetch_numbers(const std::vector<QueuedNumbers>& queued);

  std::vector<at::Tensor> memory_;
  std::vector<std::shared_ptr<const double>> written_;
  std::vector<const double*> places_;
  mutable AwaitedEvents events_;
};

// Starts to fetch the numbers. Those of one device that are no `on_host` must have equal sizes. For each
// device: one packed tensor and one copy (CUDA: asynchronous, into pinned memory; other devices: the call
// waits for it), on the current stream if all of them are queued there, otherwise on one that waits for their
// streams. Call it with gradient mode off. Throws what torch throws.
HostNumbers fetch_numbers(const std::vector<QueuedNumbers>& queued);

}  // namespace gradmon
