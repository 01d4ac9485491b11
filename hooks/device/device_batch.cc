// SPDX-License-Identifier: Apache-2.0
#include "hooks/device/device_batch.h"

#include <c10/core/GradMode.h>

#include <cstddef>
#include <utility>

#include "hooks/device/cuda_totals.h"

namespace gradmon {

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
