// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/reading.h"

#include <optional>
#include <utility>

#include "hooks/stats/device_batch.h"

namespace gradmon {
namespace {

std::optional<std::uint32_t> version_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_inference()) return std::nullopt;
  return static_cast<std::uint32_t>(tensor._version());
}

}  // namespace

void Reading::take(const at::Tensor& tensor, double eps, const std::string& name, HookFuse& fuse,
                   double scale_of_it) noexcept {
  present = false;
  scale = scale_of_it;
  fuse.guard(name, [&] {
    const auto version = version_of(tensor);
    auto taken = start_tensor_stats(tensor, eps * scale);
    why = taken ? std::string() : taken.error().substr(0, taken.error().find('\n'));
    if (taken && version != version_of(tensor)) why = "written to while it was read";
    if (!why.empty()) taken = StartedStats{{TensorStats::Outcome::not_applicable, DType::unknown, {}}, {}};
    stats = taken->stats;
    pending = std::move(taken->pending);
    if (stats.outcome == TensorStats::Outcome::measured)
      sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
    present = true;
  });
}

void Reading::lacks(std::string reason) noexcept {
  stats = {TensorStats::Outcome::not_applicable, DType::unknown, {}};
  pending.reset();
  why = std::move(reason);
  present = true;
}

void forget(std::vector<Reading>& readings) {
  for (Reading& reading : readings) {
    reading.present = false;
    reading.pending.reset();
  }
}

void settle(std::vector<Reading>& readings) {
  DeviceBatch batch;
  std::vector<Reading*> waiting;
  for (Reading& reading : readings) {
    if (!reading.pending) continue;
    batch.add(reading.pending);
    waiting.push_back(&reading);
  }
  const auto values = batch.resolve();
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    waiting[i]->stats.values = values[i];
    waiting[i]->pending.reset();
  }
}

}  // namespace gradmon
