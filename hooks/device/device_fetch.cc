// SPDX-License-Identifier: Apache-2.0
#include "hooks/device/device_fetch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "hooks/device/cuda_driver.h"
#include "hooks/device/cuda_totals.h"

namespace gradmon {
namespace {

// Programs take 0 and -1, libraries 0 and the highest, which is -3 for torch, or lower if the device has
// fewer.
constexpr int kPriority = -2;

template <typename Guard>
c10::Stream stream_of_pool(const Guard& guard, const c10::Device& device, long) {
  return guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}
template <typename Guard>
auto stream_of_pool(const Guard& guard, const c10::Device& device, int)
    -> decltype(guard.getNewStream(device, kPriority)) {
  try {
    return guard.getNewStream(device, kPriority);
  } catch (const c10::Error&) {  // not every device has new streams
    return stream_of_pool(guard, device, 0L);
  }
}

constexpr std::chrono::microseconds kPause{50};

struct DeviceShare {
  c10::Device device;
  std::vector<std::size_t> places;  // indices in the batch
  std::optional<c10::Stream> stream;
  at::Tensor on_host;
};

std::vector<DeviceShare> by_device(const std::vector<QueuedNumbers>& queued) {
  std::vector<DeviceShare> shares;
  for (std::size_t i = 0; i < queued.size(); ++i) {
    if (queued[i].on_host) continue;
    const c10::Device device = queued[i].numbers.device();
    auto share = std::find_if(shares.begin(), shares.end(),
                              [&](const DeviceShare& known) { return known.device == device; });
    if (share == shares.end()) share = shares.insert(shares.end(), {device, {}, {}, {}});
    share->places.push_back(i);
  }
  return shares;
}

// A stream for copies alone. It is the same in each step, because torch keeps memory for each stream.
// nullopt: the device has no streams for us.
std::optional<c10::Stream> copying_stream(const c10::Device& device) {
  static std::mutex mutex;
  static auto* const streams = new std::vector<c10::Stream>;  // one for each device
  const std::lock_guard lock(mutex);
  const auto known = std::find_if(streams->begin(), streams->end(),
                                  [&](const c10::Stream& stream) { return stream.device() == device; });
  if (known != streams->end()) return *known;
  const auto stream = own_stream(device);
  if (stream) streams->push_back(*stream);
  return stream;
}

void await_others(const c10::Stream& waiting, const std::vector<c10::Stream>& others) {
  for (const c10::Stream& other : others) {
    c10::Event event(other.device_type());
    event.record(other);
    event.block(waiting);
  }
}

void add_once(std::vector<c10::Stream>& streams, const c10::Stream& stream) {
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

// Returns the stream that copies the results of `makers`: the current one if it made them all, else our own.
// Other streams may be far behind, in an asynchronous communication, and the program must not wait for them.
c10::Stream stream_after(const std::vector<c10::Stream>& makers, const c10::Device& device) {
  const c10::Stream current = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  if (makers == std::vector{current}) return current;
  const c10::Stream own = copying_stream(device).value_or(current);
  await_others(own, makers);
  return own;
}

// Pinned memory for the numbers that the stream computes, into which the device copies while nobody waits.
// Undefined if the device has no such memory or no events.
at::Tensor pinned_memory_for(const at::Tensor& numbers, const std::optional<c10::Stream>& stream) {
  static std::atomic<bool> has_none{false};  // of accelerators without CUDA; a process has one kind of them
  const auto options = at::TensorOptions(numbers.scalar_type()).pinned_memory(true);
  if (numbers.is_cuda()) return at::empty(numbers.sizes(), options);
  if (!stream || has_none.load(std::memory_order_relaxed)) return {};
  try {
    c10::Event(stream->device_type()).record(*stream);
    return at::empty(numbers.sizes(), options);
  } catch (const c10::Error&) {
    has_none.store(true, std::memory_order_relaxed);
    return {};
  }
}

void start_copy(DeviceShare& share, const std::vector<QueuedNumbers>& queued) {
  std::vector<at::Tensor> rows;
  std::vector<c10::Stream> makers;
  for (const std::size_t i : share.places) {
    rows.push_back(queued[i].numbers);
    if (queued[i].stream) add_once(makers, *queued[i].stream);
  }
  // Floats are those of a device that has refused double.
  if (std::any_of(rows.begin(), rows.end(),
                  [](const auto& row) { return row.scalar_type() == at::kFloat; })) {
    for (at::Tensor& row : rows) row = row.to(at::kFloat);
  }
  c10::OptionalStreamGuard guard;
  if (!makers.empty()) {
    share.stream = stream_after(makers, share.device);
    guard.reset_stream(*share.stream);
  }
  const at::Tensor packed = at::stack(rows);
  share.on_host = pinned_memory_for(packed, share.stream);
  if (share.on_host.defined()) {
    share.on_host.copy_(packed, /*non_blocking=*/true);
  } else {
    share.on_host = packed.to(at::kCPU);
    share.stream.reset();  // This copy waits for the device.
  }
}

}  // namespace

std::optional<c10::Stream> own_stream(const c10::Device& device) {
  if (!c10::impl::hasDeviceGuardImpl(device.type())) return std::nullopt;
  try {
    return stream_of_pool(c10::impl::VirtualGuardImpl(device.type()), device, 0);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

AwaitedEvents::~AwaitedEvents() {
  while (!events_.empty()) {
    const c10::OptionalDeviceGuard guard(events_.back().device());
    events_.pop_back();
  }
}

void AwaitedEvents::record(const c10::Stream& stream) {
  events_.emplace_back(stream.device_type()).record(stream);
}

bool AwaitedEvents::passed() {
  while (!events_.empty()) {
    const c10::OptionalDeviceGuard guard(events_.back().device());
    const CaptureUndisturbed undisturbed;
    if (!events_.back().query()) return false;
    events_.pop_back();
  }
  return true;
}

bool HostNumbers::ready() const {
  if (!events_.passed()) return false;
  for (const auto& [floats, doubles] : floats_) doubles.copy_(floats);
  floats_.clear();
  return true;
}

void HostNumbers::wait() const {
  while (!ready()) std::this_thread::sleep_for(kPause);
}

HostNumbers fetch_numbers(const std::vector<QueuedNumbers>& queued) {
  HostNumbers fetched;
  fetched.places_.resize(queued.size());
  std::vector<c10::Stream> streams;
  for (DeviceShare& share : by_device(queued)) {
    start_copy(share, queued);
    if (share.stream) add_once(streams, *share.stream);
    if (share.on_host.scalar_type() != at::kDouble) {
      const at::Tensor floats =
          std::exchange(share.on_host, share.on_host.new_empty(share.on_host.sizes(), at::kDouble));
      fetched.floats_.emplace_back(floats, share.on_host);
    }
    const double* own = share.on_host.data_ptr<double>();
    for (const std::size_t i : share.places) {
      fetched.places_[i] = own;
      own += queued[i].numbers.numel();
    }
    fetched.memory_.push_back(share.on_host);
  }
  for (std::size_t i = 0; i < queued.size(); ++i) {
    if (!queued[i].on_host) continue;
    fetched.places_[i] = queued[i].on_host.get();
    fetched.written_.push_back(queued[i].on_host);
    if (queued[i].stream) add_once(streams, *queued[i].stream);
  }
  for (const c10::Stream& stream : streams) fetched.events_.record(stream);
  return fetched;
}

void DeviceBatch::add(PendingScalars numbers) { numbers_.push_back(std::move(numbers)); }

void DeviceBatch::clear() { numbers_.clear(); }

std::string DeviceBatch::why_not_now() const {
  for (const PendingScalars& one : numbers_) {
    if (!one->stream) continue;
    if (std::string why = why_captured(one->stream->device()); !why.empty()) return why;
  }
  return "";
}

FetchedBatch DeviceBatch::fetch() {
  const c10::NoGradGuard no_grad;
  FetchedBatch batch;
  batch.numbers_ = std::exchange(numbers_, {});
  std::vector<QueuedNumbers> queued;
  for (const PendingScalars& one : batch.numbers_)
    queued.push_back({one->numbers, one->stream, one->on_host});
  batch.fetched_ = fetch_numbers(queued);
  return batch;
}

std::vector<std::optional<DeviceScalars::Values>> FetchedBatch::values() const {
  fetched_.wait();
  std::vector<std::optional<DeviceScalars::Values>> values(numbers_.size());
  for (std::size_t i = 0; i < numbers_.size(); ++i)
    values[i] = numbers_[i]->finish(fetched_.of(i), numbers_[i]->elements);
  return values;
}

}  // namespace gradmon
