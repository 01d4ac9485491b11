// SPDX-License-Identifier: Apache-2.0
// The bounded queue from the hooks to the writer thread. The rows of a step are gathered on the training
// thread and passed on as one batch at the step's end. If the batches that wait have no room for it,
// end_step() waits or drops it, as Overflow says; dropped rows are counted.
//
// One step of training, on one thread at a time:
//   queue.begin_step();
//   queue.push(record);                       // any number of times; takes no lock
//   queue.end_step(revision, step);
//   queue.end_collection(revision, step);     // once, after the last step collected
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "control/step.h"
#include "writers/queue/record_batch.h"
#include "writers/queue/sink.h"

namespace gradmon {

using RowsByKind = std::array<std::uint64_t, kKinds>;

// Messages to the writer thread. It gets them in the order in which they were posted, by all threads
// together.
struct RevisionBegun {
  Layout layout;
  std::vector<std::unique_ptr<Sink>> sinks;
  std::unique_ptr<StepObserver> observer;   // may be null
  std::function<void(RecordBatch&)> amend;  // may be null
};

// The batch of a step.
struct StepEnded {
  Revision revision;
  Step step;
  RecordBatch records = {};                // kForRows, in the order in which they were pushed
  std::vector<Histogram> histograms = {};  // likewise
  RowsByKind rows = {};                    // of both
  RecordBatch flight = {};                 // kForFlight
  RecordBatch replicas = {};               // kForReplicas
  std::shared_ptr<LateValues> late = {};   // of the records; null: all are complete
  bool valid = true;                       // false: the rows must not be written

  std::uint64_t count() const { return records.size() + histograms.size() + flight.size() + replicas.size(); }
};

struct CollectionEnded {
  Revision revision;
  Step last;
};

// The last message.
struct WriterStopped {};

struct Marker {
  std::variant<RevisionBegun, StepEnded, CollectionEnded, FileToWrite, WriterStopped> message;
};

enum class Overflow {
  block,  // wait for room, at most `max_wait`, then drop batches until the queue is half empty
  drop,   // drop at once
};

struct QueueOptions {
  std::size_t capacity = 65536;  // rows of all waiting batches; a larger batch waits alone
  Overflow overflow = Overflow::block;
  std::chrono::milliseconds max_wait{5000};  // per step
};

class RecordQueue {
 public:
  // No other thread may be inside a member during the destructor.
  explicit RecordQueue(const QueueOptions& options);
  ~RecordQueue();

  RecordQueue(const RecordQueue&) = delete;
  RecordQueue& operator=(const RecordQueue&) = delete;

  // Training thread. Drops the rows of a step that has not ended.
  void begin_step() noexcept;
  // Training thread. False: there is no memory for the row; it counts as dropped. Allocates only while a step
  // grows beyond the largest one so far. A record goes to those of its readers that are not for norms.
  bool push(const Record& record) noexcept;
  bool push(const Histogram& histogram) noexcept;
  // Training thread. Passes the values of this step's records that have kLate; the writer thread waits for
  // them.
  void set_late_values(std::shared_ptr<LateValues> late) noexcept { open_.late = std::move(late); }
  // Training thread. Posts the step's batch to the writer, unless it is empty or dropped. A batch without
  // rows for the sinks does not wait for room.
  struct Ended {
    std::uint64_t rows = 0;         // admitted, for the sinks
    std::uint64_t flight_lost = 0;  // dropped
    std::uint64_t replicas_lost = 0;
  };
  Ended end_step(Revision revision, Step step) noexcept;
  // Training thread. Further records of the last ended step, before the next one ends. They are admitted
  // whether or not there is room, so pass few of them. The writer gets them as a batch of their own.
  void add_to_step(Revision revision, Step step, const RecordBatch& records) noexcept;
  // Instead of end_step for a step that does not count. Its rows are lost.
  void drop_step(Revision revision, Step step) noexcept;
  // The writer thread reports Finished once everything before this is written.
  void end_collection(Revision revision, Step last) noexcept;

  // Any thread. Takes effect with the next batch.
  void set_overflow(Overflow overflow) noexcept;
  // Any thread. From now on every batch is dropped, and a waiting one gives up. Batches already in the queue
  // stay. Cannot be undone.
  void abandon() noexcept;

  // Any thread.
  std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }
  // True from the moment `max_wait` is used up until the queue is half empty.
  bool dropping() const noexcept;
  // True while a batch waits for room.
  bool waiting() const noexcept { return waits_.load(); }
  // The rows for the sinks in the batches that the writer has not taken.
  RowsByKind rows() const noexcept;

  // Any thread. Throws only std::bad_alloc.
  void post(Marker marker);

  // Writer thread only, from here on.
  // Waits for the next message.
  Marker wait();
  // Takes the next message, if there is one.
  bool try_take(Marker& marker);
  // Frees the room of a batch that was taken.
  void release(const StepEnded& batch) noexcept;
  // Returns the memory of a batch, for a later step.
  void recycle(StepEnded batch) noexcept;

 private:
  struct Channel;

  bool admit(const StepEnded& batch) noexcept;
  bool has_room(std::uint64_t rows) noexcept;
  void post_batch(StepEnded batch) noexcept;
  void drop(std::uint64_t rows) noexcept { dropped_.fetch_add(rows, std::memory_order_relaxed); }

  // Constant after construction.
  const std::uint64_t capacity_;
  const std::chrono::nanoseconds max_wait_;

  // Own synchronisation.
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<bool> waits_{false};

  StepEnded open_;  // training thread: the step that has not ended

  mutable std::mutex mutex_;
  std::condition_variable room_freed_;
  // Guarded by mutex_; the receiving side of the channel belongs to the writer thread.
  const std::unique_ptr<Channel> channel_;
  Overflow overflow_;
  bool dropping_ = false;
  bool abandoned_ = false;
  RowsByKind rows_{};
  std::uint64_t count_ = 0;  // StepEnded::count() of the waiting batches
  StepEnded spare_;          // empty, with the capacity of an earlier step
};

}  // namespace gradmon
