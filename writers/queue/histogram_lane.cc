// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/histogram_lane.h"

#include <algorithm>
#include <new>
#include <utility>

namespace gradmon {

HistogramLane::HistogramLane(std::size_t capacity) : capacity_(std::max<std::size_t>(capacity, 1)) {}

bool HistogramLane::push(const Histogram& histogram) noexcept {
  // Only this thread adds, so that the lane cannot become full in between.
  if (abandoned_.load(std::memory_order_relaxed) || waiting_.load() >= capacity_) return drop();
  try {
    open_.push_back(histogram);
  } catch (const std::bad_alloc&) {
    return drop();
  }
  waiting_.fetch_add(1);
  return true;
}

bool HistogramLane::drop() noexcept {
  dropped_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

std::vector<Histogram> HistogramLane::take_step() noexcept {
  if (open_.empty()) return {};
  const std::lock_guard lock(mutex_);
  return std::exchange(open_, std::exchange(spare_, {}));
}

void HistogramLane::recycle(std::vector<Histogram> histograms) noexcept {
  histograms.clear();
  const std::lock_guard lock(mutex_);
  if (spare_.capacity() < histograms.capacity()) spare_.swap(histograms);
}

}  // namespace gradmon
