// SPDX-License-Identifier: Apache-2.0
#include "hooks/device/device_fetch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "hooks/device/cuda_driver.h"

namespace gradmon {
namespace {

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

void await_others(const c10::Stream& current, std::vector<c10::Stream> others) {
  std::vector<c10::Stream> seen{current};
  for (const c10::Stream& other : others) {
    if (std::find(seen.begin(), seen.end(), other) != seen.end()) continue;
    seen.push_back(other);
    c10::Event event(other.device_type());
    event.record(other);
    event.block(current);
  }
}

void start_copy(DeviceShare& share, const std::vector<QueuedNumbers>& queued) {
  std::vector<at::Tensor> rows;
  std::vector<c10::Stream> streams;
  for (const std::size_t i : share.places) {
    rows.push_back(queued[i].numbers);
    if (queued[i].stream) streams.push_back(*queued[i].stream);
  }
  if (!streams.empty()) {
    share.stream = c10::impl::VirtualGuardImpl(share.device.type()).getStream(share.device);
    await_others(*share.stream, std::move(streams));
  }
  const at::Tensor packed = at::stack(rows);
  if (!packed.is_cuda()) {
    share.on_host = packed.to(at::kCPU).to(at::kDouble);
    share.stream.reset();  // This copy waits for the device.
    return;
  }
  share.on_host = at::empty(packed.sizes(), at::TensorOptions(at::kDouble).pinned_memory(true));
  share.on_host.copy_(packed, /*non_blocking=*/true);
}

}  // namespace

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

bool HostNumbers::ready() const { return events_.passed(); }

void HostNumbers::wait() const {
  while (!ready()) std::this_thread::sleep_for(kPause);
}

HostNumbers fetch_numbers(const std::vector<QueuedNumbers>& queued) {
  HostNumbers fetched;
  fetched.places_.resize(queued.size());
  std::vector<c10::Stream> streams;
  const auto note_stream = [&](const std::optional<c10::Stream>& stream) {
    if (stream && std::find(streams.begin(), streams.end(), *stream) == streams.end())
      streams.push_back(*stream);
  };
  for (DeviceShare& share : by_device(queued)) {
    start_copy(share, queued);
    note_stream(share.stream);
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
    note_stream(queued[i].stream);
  }
  for (const c10::Stream& stream : streams) fetched.events_.record(stream);
  return fetched;
}

}  // namespace gradmon
