// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/record_queue.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <tuple>

#include "control/log.h"

namespace gradmon {
namespace {

bool comes_first(const Record& a, const Record& b) {
  return std::tie(a.kind, a.sequence) < std::tie(b.kind, b.sequence);
}

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kNone = -1;
constexpr std::size_t kBatch = 256;

}  // namespace

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

void StepBuffer::add(const std::vector<Record>& records) {
  auto home = steps_.end();
  for (const Record& record : records) {
    const Key key{record.revision, record.step};
    if (key <= last_) {
      ++lost_;
      continue;
    }
    if (home == steps_.end() || home->first != key) {
      home = steps_.try_emplace(key).first;
      if (home->second.capacity() == 0) home->second.swap(spare_);
    }
    home->second.push_back(record);
    ++held_;
    ++held_by_kind_[static_cast<std::size_t>(record.kind)];
  }
}

std::size_t StepBuffer::count(Revision revision, Step step) const {
  const auto home = steps_.find({revision.value, step.value});
  return home == steps_.end() ? 0 : home->second.size();
}

std::vector<Record>& StepBuffer::close(Revision revision, Step step) {
  last_ = {revision.value, step.value};
  closed_.clear();
  while (!steps_.empty() && steps_.begin()->first <= last_) {
    const auto oldest = steps_.begin();
    held_ -= oldest->second.size();
    for (const Record& record : oldest->second) --held_by_kind_[static_cast<std::size_t>(record.kind)];
    if (oldest->first == last_) {
      closed_.swap(oldest->second);
    } else {
      lost_ += oldest->second.size();
    }
    oldest->second.clear();
    if (spare_.capacity() < oldest->second.capacity()) spare_.swap(oldest->second);
    steps_.erase(oldest);
  }
  if (!std::is_sorted(closed_.begin(), closed_.end(), comes_first)) {
    std::stable_sort(closed_.begin(), closed_.end(), comes_first);
  }
  return closed_;
}

void StepBuffer::clear() {
  lost_ += held_;
  held_ = 0;
  held_by_kind_ = {};
  steps_.clear();
}

RecordQueue::RecordQueue(const QueueOptions& options)
    : capacity_(static_cast<std::int64_t>(std::max<std::size_t>(options.capacity, 1))),
      max_wait_(options.max_wait),
      histograms_(options.capacity),
      overflow_(options.overflow),
      free_(capacity_) {}

bool RecordQueue::push(const Record& record) noexcept {
  std::int64_t left = take_place();
  if (left == kNone && overflow_.load(std::memory_order_relaxed) == Overflow::block) left = wait_for_place();
  if (left == kNone) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  if (!lanes_.put(record)) {
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
    const std::size_t n = lanes_.take(batch.data(), std::min(kBatch, at_most - taken));
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
