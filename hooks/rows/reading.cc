// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/reading.h"

#include <chrono>
#include <utility>

#include "hooks/stats/device_batch.h"
#include "hooks/stats/readable.h"

namespace gradmon {

std::int64_t reading_time() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void Reading::read(const at::Tensor& tensor, double eps, const std::string& name, HookFuse& fuse,
                   double scale_of_it) noexcept {
  has_value = false;
  scale = scale_of_it;
  read_at = reading_time();
  fuse.guard(name, [&] {
    const auto version = version_of(tensor);
    auto taken = start_tensor_stats(tensor, eps * scale);
    if (taken && version != version_of(tensor))
      taken = tl::unexpected<std::string>("the tensor was modified while it was read");
    why.clear();
    if (!taken) {
      why = first_line(taken.error());
      taken = StartedStats{{TensorStats::Outcome::not_applicable, DType::unknown, {}}, {}};
    }
    stats = taken->stats;
    pending = std::move(taken->pending);
    if (stats.outcome == TensorStats::Outcome::measured)
      sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
    has_value = true;
  });
}

void Reading::mark_not_applicable(std::string reason) noexcept {
  stats = {TensorStats::Outcome::not_applicable, DType::unknown, {}};
  pending.reset();
  why = std::move(reason);
  has_value = true;
}

void forget(std::vector<Reading>& readings) {
  for (Reading& reading : readings) {
    reading.has_value = false;
    reading.pending.reset();
  }
}

void resolve_pending(const std::vector<Reading*>& readings) {
  DeviceBatch batch;
  std::vector<Reading*> waiting;
  for (Reading* reading : readings) {
    if (!reading->pending) continue;
    batch.add(reading->pending);
    waiting.push_back(reading);
  }
  const auto values = batch.resolve();
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    waiting[i]->stats.values = values[i].value();
    waiting[i]->pending.reset();
  }
}

}  // namespace gradmon
