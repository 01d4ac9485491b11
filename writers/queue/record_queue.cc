// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/record_queue.h"

#include <blockingconcurrentqueue.h>

#include <new>
#include <utility>

#include "control/log.h"

namespace gradmon {
namespace {

void clear(StepEnded& batch) {
  for (auto* records : {&batch.records, &batch.flight, &batch.replicas}) records->clear();
  batch.histograms.clear();
  batch.rows = {};
  batch.late.reset();
}

std::uint64_t rows_of(const StepEnded& batch) { return batch.records.size() + batch.histograms.size(); }

void add(const Record& record, StepEnded& batch) {
  if ((record.readers & kForFlight) != 0) batch.flight.push_back(record);
  if ((record.readers & kForReplicas) != 0) batch.replicas.push_back(record);
  if ((record.readers & kForRows) == 0) return;
  batch.records.push_back(record);
  ++batch.rows[static_cast<std::size_t>(record.kind)];
}

// Takes the memory of another batch where it is larger. Both are empty.
void take_memory(StepEnded& batch, StepEnded& other) {
  const auto take = [](RecordBatch& own, RecordBatch& others) {
    if (others.room() > own.room()) std::swap(own, others);
  };
  take(batch.records, other.records);
  take(batch.flight, other.flight);
  take(batch.replicas, other.replicas);
  if (other.histograms.capacity() > batch.histograms.capacity()) batch.histograms.swap(other.histograms);
}

}  // namespace

// One token for all producers, under mutex_: moodycamel's queue keeps the order of one producer only.
struct RecordQueue::Channel {
  moodycamel::BlockingConcurrentQueue<Marker> queue{1};
  moodycamel::ProducerToken producer{queue};
};

RecordQueue::RecordQueue(const QueueOptions& options)
    : capacity_(options.capacity),
      max_wait_(options.max_wait),
      channel_(std::make_unique<Channel>()),
      overflow_(options.overflow) {}

RecordQueue::~RecordQueue() = default;

void RecordQueue::begin_step() noexcept {
  drop(rows_of(open_));
  clear(open_);
}

bool RecordQueue::push(const Record& record) noexcept {
  try {
    add(record, open_);
    return true;
  } catch (const std::bad_alloc&) {
    drop(1);
    return false;
  }
}

bool RecordQueue::push(const Histogram& histogram) noexcept {
  try {
    open_.histograms.push_back(histogram);
  } catch (const std::bad_alloc&) {
    drop(1);
    return false;
  }
  ++open_.rows[static_cast<std::size_t>(histogram.kind)];
  return true;
}

RecordQueue::Ended RecordQueue::end_step(Revision revision, Step step) noexcept {
  if (!admit(open_)) {
    const Ended lost{0, open_.flight.size(), open_.replicas.size()};
    begin_step();
    return lost;
  }
  const std::uint64_t records = open_.records.size();
  open_.revision = revision;
  open_.step = step;
  open_.valid = true;
  post_batch(std::exchange(open_, {}));
  return {records};
}

void RecordQueue::drop_step(Revision revision, Step step) noexcept {
  open_.revision = revision;
  open_.step = step;
  open_.valid = false;
  post_batch(std::exchange(open_, {}));
}

void RecordQueue::add_to_step(Revision revision, Step step, const RecordBatch& records) noexcept {
  try {
    StepEnded batch{revision, step};
    for (const Record& record : records) add(record, batch);
    post_batch(std::move(batch));
  } catch (const std::bad_alloc&) {
    drop(records.size());
  }
}

void RecordQueue::end_collection(Revision revision, Step last) noexcept {
  try {
    post(Marker{CollectionEnded{revision, last}});
  } catch (const std::bad_alloc&) {
    log_error("out of memory: cannot report the end of a collection");
  }
}

// Waits for room. False: the batch must be dropped.
bool RecordQueue::admit(const StepEnded& batch) noexcept {
  const std::uint64_t rows = batch.count();
  std::unique_lock lock(mutex_);
  if (has_room(rows)) return true;
  if (rows_of(batch) == 0 || overflow_ == Overflow::drop || dropping_ || abandoned_) return false;
  waits_.store(true);
  const bool freed = room_freed_.wait_for(lock, max_wait_, [&] { return abandoned_ || has_room(rows); });
  waits_.store(false);
  dropping_ = !freed;
  return freed && !abandoned_;
}

// Call it with the mutex held.
bool RecordQueue::has_room(std::uint64_t rows) noexcept {
  if (abandoned_) return false;
  if (dropping_ && count_ > capacity_ / 2) return false;
  dropping_ = false;
  return count_ == 0 || count_ + rows <= capacity_;
}

void RecordQueue::post_batch(StepEnded batch) noexcept {
  if (batch.count() == 0) return;
  const RowsByKind rows = batch.rows;
  const std::uint64_t count = batch.count(), lost = rows_of(batch);
  try {
    const std::lock_guard lock(mutex_);
    take_memory(open_, spare_);
    // The next step mostly has as many rows; a vector that doubles takes up to twice their memory.
    if (open_.records.empty()) open_.records.reserve_as(batch.records);
    if (!channel_->queue.enqueue(channel_->producer, Marker{std::move(batch)})) throw std::bad_alloc();
    for (std::size_t kind = 0; kind < rows.size(); ++kind) rows_[kind] += rows[kind];
    count_ += count;
  } catch (const std::bad_alloc&) {
    drop(lost);
    log_error("out of memory: a step's rows are lost");
  }
}

void RecordQueue::set_overflow(Overflow overflow) noexcept {
  const std::lock_guard lock(mutex_);
  overflow_ = overflow;
}

void RecordQueue::abandon() noexcept {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
  room_freed_.notify_all();
}

bool RecordQueue::dropping() const noexcept {
  const std::lock_guard lock(mutex_);
  return dropping_;
}

RowsByKind RecordQueue::rows() const noexcept {
  const std::lock_guard lock(mutex_);
  return rows_;
}

void RecordQueue::post(Marker marker) {
  const std::lock_guard lock(mutex_);
  if (!channel_->queue.enqueue(channel_->producer, std::move(marker))) throw std::bad_alloc();
}

Marker RecordQueue::wait() {
  Marker marker;
  channel_->queue.wait_dequeue(marker);
  return marker;
}

bool RecordQueue::try_take(Marker& marker) { return channel_->queue.try_dequeue(marker); }

void RecordQueue::release(const StepEnded& batch) noexcept {
  const std::lock_guard lock(mutex_);
  for (std::size_t kind = 0; kind < rows_.size(); ++kind) rows_[kind] -= batch.rows[kind];
  count_ -= batch.count();
  room_freed_.notify_all();
}

void RecordQueue::recycle(StepEnded batch) noexcept {
  clear(batch);
  const std::lock_guard lock(mutex_);
  take_memory(spare_, batch);
}

}  // namespace gradmon
