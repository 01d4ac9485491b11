// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/record_queue.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <new>
#include <utility>

#include "control/log.h"
#include "writers/queue/marker.h"
#include "writers/queue/producer_lanes.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kNone = -1;
constexpr std::size_t kBatch = 256;

}  // namespace

RecordQueue::RecordQueue(const QueueOptions& options)
    : capacity_(static_cast<std::int64_t>(std::max<std::size_t>(options.capacity, 1))),
      max_wait_(options.max_wait),
      lanes_(std::make_unique<ProducerLanes>()),
      histograms_(options.capacity),
      overflow_(options.overflow),
      free_(capacity_) {}

RecordQueue::~RecordQueue() = default;

bool RecordQueue::push(const Record& record) noexcept {
  std::int64_t left = take_place();
  if (left == kNone && overflow_.load(std::memory_order_relaxed) == Overflow::block) left = wait_for_place();
  if (left == kNone) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  if (!lanes_->put(record)) {
    free_.fetch_add(1);
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  accepted_.fetch_add(1, std::memory_order_release);
  if (left == capacity_ / 2) {
    const std::lock_guard lock(mutex_);
    writer_wanted_.notify_one();
  }
  return true;
}

std::int64_t RecordQueue::take_place() noexcept {
  if (abandoned_.load(std::memory_order_relaxed)) return kNone;
  if (dropping_.load(std::memory_order_relaxed)) {
    if (free_.load(std::memory_order_relaxed) < capacity_ - capacity_ / 2) return kNone;
    dropping_.store(false, std::memory_order_relaxed);
  }
  const std::int64_t before = free_.fetch_sub(1);
  if (before > 0) return before - 1;
  free_.fetch_add(1);
  return kNone;
}

std::int64_t RecordQueue::wait_for_place() noexcept {
  std::unique_lock lock(mutex_);
  if (waiting_.fetch_add(1) == 0) waiting_since_ = Clock::now();
  std::int64_t left = take_place();
  while (left == kNone && wait_once(lock)) left = take_place();
  if (waiting_.fetch_sub(1) == 1) waited_ += Clock::now() - waiting_since_;
  return left;
}

bool RecordQueue::wait_once(std::unique_lock<std::mutex>& lock) {
  if (abandoned_.load() || dropping_.load()) return false;
  const auto wait_left = max_wait_ - waited_ - (Clock::now() - waiting_since_);
  if (wait_left > std::chrono::nanoseconds::zero()) {
    place_freed_.wait_for(lock, wait_left);
    return true;
  }
  dropping_.store(true);
  return false;
}

void RecordQueue::reset_wait() noexcept {
  const std::lock_guard lock(mutex_);
  waited_ = std::chrono::nanoseconds::zero();
  waiting_since_ = Clock::now();
}

void RecordQueue::begin_step() noexcept { reset_wait(); }

std::uint64_t RecordQueue::end_step(Revision revision, Step step) noexcept {
  return close_step({revision, step, 0, {}, true, {}});
}

void RecordQueue::drop_step(Revision revision, Step step) noexcept {
  close_step({revision, step, 0, {}, false, {}});
}

std::uint64_t RecordQueue::close_step(StepEnded ended) noexcept {
  reset_wait();
  const std::uint64_t accepted = accepted_.load(std::memory_order_acquire);
  const std::uint64_t records = accepted - std::exchange(accepted_before_, accepted);
  ended.records = records;
  ended.histograms = histograms_.take_step();
  ended.late = std::exchange(late_, nullptr);
  if (records == 0 && ended.histograms.empty()) return 0;
  try {
    post(Marker{std::move(ended)});
  } catch (const std::bad_alloc&) {
    log_error("out of memory: a step's records are lost");
  }
  return records;
}

void RecordQueue::add_to_step(Revision revision, Step step, std::vector<Record> records) noexcept {
  try {
    post(Marker{StepEnded{revision, step, 0, {}, true, {}, std::move(records)}});
  } catch (const std::bad_alloc&) {
    log_error("out of memory: the scalars of a step are lost");
  }
}

void RecordQueue::end_collection(Revision revision, Step last) noexcept {
  try {
    post(Marker{CollectionEnded{revision, last}});
  } catch (const std::bad_alloc&) {
    log_error("out of memory: cannot report the end of a collection");
  }
}

void RecordQueue::set_overflow(Overflow overflow) noexcept {
  overflow_.store(overflow, std::memory_order_relaxed);
}

void RecordQueue::abandon() noexcept {
  histograms_.abandon();
  const std::lock_guard lock(mutex_);
  abandoned_.store(true);
  place_freed_.notify_all();
}

void RecordQueue::post(Marker marker) {
  const std::lock_guard lock(mutex_);
  markers_.push_back(std::move(marker));
  writer_wanted_.notify_one();
}

void RecordQueue::wait(WakeFor wake) {
  std::unique_lock lock(mutex_);
  writer_wanted_.wait(lock, [&] {
    return !markers_.empty() || (wake == WakeFor::markers_or_half_full && free_.load() <= capacity_ / 2);
  });
}

void RecordQueue::take_markers(std::vector<Marker>& markers) {
  const std::lock_guard lock(mutex_);
  std::move(markers_.begin(), markers_.end(), std::back_inserter(markers));
  markers_.clear();
}

std::size_t RecordQueue::take(std::vector<Record>& records, std::size_t at_most) {
  std::array<Record, kBatch> batch;
  std::size_t taken = 0;
  while (taken < at_most) {
    const std::size_t n = lanes_->take(batch.data(), std::min(kBatch, at_most - taken));
    if (n == 0) break;
    records.insert(records.end(), batch.begin(), batch.begin() + static_cast<std::ptrdiff_t>(n));
    taken += n;
    free_.fetch_add(static_cast<std::int64_t>(n));
    if (waiting_.load() == 0) continue;
    const std::lock_guard lock(mutex_);
    place_freed_.notify_all();
  }
  return taken;
}

}  // namespace gradmon
