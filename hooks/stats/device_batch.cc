// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/device_batch.h"

#include <c10/core/GradMode.h>

#include <cstddef>
#include <utility>

#include "hooks/stats/device_fetch.h"

namespace gradmon {

void DeviceBatch::add(PendingScalars numbers) { numbers_.push_back(std::move(numbers)); }

void DeviceBatch::clear() { numbers_.clear(); }

std::vector<std::optional<DeviceScalars::Values>> DeviceBatch::resolve() {
  const c10::NoGradGuard no_grad;
  const std::vector<PendingScalars> numbers = std::exchange(numbers_, {});
  std::vector<QueuedNumbers> queued;
  for (const PendingScalars& one : numbers) queued.push_back({one->numbers, one->stream});
  const HostNumbers fetched = fetch_numbers(queued);
  std::vector<std::optional<DeviceScalars::Values>> values(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    values[i] = numbers[i]->finish(fetched.of(i), numbers[i]->elements);
  return values;
}

}  // namespace gradmon
