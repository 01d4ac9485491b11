// SPDX-License-Identifier: Apache-2.0
// The bounded lane of histograms from the hooks to the writer thread, beside the records: a Record has no
// room for 30 bins. The histograms of a step travel together, with the marker of the step's end, in the order
// in which they were pushed. A full lane drops at once: its places become free only after the step has ended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "writers/queue/histogram.h"

namespace gradmon {

class HistogramLane {
 public:
  // `capacity`: histograms; 0 counts as 1. Memory is taken when it is first needed.
  explicit HistogramLane(std::size_t capacity);

  HistogramLane(const HistogramLane&) = delete;
  HistogramLane& operator=(const HistogramLane&) = delete;

  // Training thread. Returns false if the histogram was dropped (and counted). Takes no lock; allocates only
  // while a step grows beyond the largest step so far.
  bool push(const Histogram& histogram) noexcept;
  // Training thread. The histograms pushed since the previous call, in order. They keep their places until
  // release().
  std::vector<Histogram> take_step() noexcept;

  // Any thread. From now on every push drops and counts its histogram. Cannot be undone.
  void abandon() noexcept { abandoned_.store(true, std::memory_order_relaxed); }
  // Any thread. waiting() + dropped() + the released ones is the number of push calls that have returned.
  std::uint64_t waiting() const noexcept { return waiting_.load(); }
  std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

  // Any thread. Frees the places of `count` histograms that take_step() has returned.
  void release(std::size_t count) noexcept { waiting_.fetch_sub(count); }
  // Any thread. Returns the memory of a step, for a later step.
  void recycle(std::vector<Histogram> histograms) noexcept;

 private:
  bool drop() noexcept;

  // Constant after construction.
  const std::uint64_t capacity_;

  // Own synchronisation.
  std::atomic<std::uint64_t> waiting_{0};
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<bool> abandoned_{false};

  std::vector<Histogram> open_;  // training thread: the step that has not ended

  std::mutex mutex_;
  std::vector<Histogram> spare_;  // guarded by mutex_; empty, with the capacity of an earlier step
};

}  // namespace gradmon
