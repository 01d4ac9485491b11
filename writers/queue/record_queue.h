// SPDX-License-Identifier: Apache-2.0
// The bounded queue from the hooks to the writer thread. When it is full, push waits or drops, as
// its Overflow says; dropped records are counted. In the steady state push takes no lock,
// allocates nothing and makes no system call. Histograms go beside the records, on a lane of their own.
//
// One step of training:
//   queue.begin_step();                       // training thread
//   queue.push(record);                       // any thread, before end_step
//   queue.histograms().push(histogram);       // training thread, before end_step
//   queue.end_step(revision, step);           // training thread, after all pushes
//   queue.end_collection(revision, step);     // once, after the last step collected
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "control/step.h"
#include "writers/queue/record.h"
#include "writers/queue/sink.h"

namespace gradmon {

// One lane of records per producing thread, read by one thread. FIFO within a lane, no order between
// lanes, unbounded (RecordQueue adds the bound). Implemented with moodycamel's queue and one token
// per thread. Under ThreadSanitizer it is a deque with a mutex, because the sanitizer reports races
// inside moodycamel's code.
class ProducerLanes {
 public:
  ProducerLanes();
  // No thread may be inside put or take.
  ~ProducerLanes();

  ProducerLanes(const ProducerLanes&) = delete;
  ProducerLanes& operator=(const ProducerLanes&) = delete;

  // Any thread. Allocates at the first call of a thread, and when a lane grows beyond its largest
  // size so far. The lane of an ended thread is given to the next new thread. False: out of memory.
  bool put(const Record& record) noexcept;

  // One thread at a time. Takes up to n records; returns how many.
  std::size_t take(Record* into, std::size_t n) noexcept;

  // Any thread. Number of lanes: the largest number of producing threads at one time.
  std::size_t count() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Control messages to the writer thread. It gets them in the order in which they were posted.
// Markers are never dropped and take no place in the queue.
struct RevisionBegun {
  Layout layout;
  std::vector<std::unique_ptr<Sink>> sinks;
  std::unique_ptr<StepObserver> observer;           // may be null
  std::function<void(std::vector<Record>&)> amend;  // may be null
};

struct StepEnded {
  Revision revision;
  Step step;
  std::uint64_t records;                  // accepted since the previous step ended
  std::vector<Histogram> histograms;      // with their places in the HistogramLane
  bool valid = true;                      // false: neither must be written
  std::shared_ptr<LateValues> late = {};  // of the records; null: all are complete
  std::vector<Record> more = {};          // further records, without places in the queue
};

struct CollectionEnded {
  Revision revision;
  Step last;
};

// The last marker.
struct WriterStopped {};

struct Marker {
  std::variant<RevisionBegun, StepEnded, CollectionEnded, FileToWrite, WriterStopped> message;
};

// The bounded lane of histograms from the hooks to the writer thread, beside the records: a Record has no
// room for 30 bins. The histograms of a step travel together, with the marker of the step's end, in the order
// in which they were pushed. A full lane drops at once: its places become free only after the step has ended.
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

using RowsByKind = std::array<std::uint64_t, kKinds>;

// Groups records by step; they arrive in any order. Pure; one thread.
class StepBuffer {
 public:
  // A record of a step that is already closed is counted as lost.
  void add(const std::vector<Record>& records);

  // Number of records held for that step.
  std::size_t count(Revision revision, Step step) const;

  // Returns the step's records, sorted by kind and then sequence; valid until the next call of any
  // member. Earlier steps that were never closed are lost.
  std::vector<Record>& close(Revision revision, Step step);

  // Drops all held records and counts them as lost.
  void clear();

  std::size_t held() const { return held_; }
  const RowsByKind& held_by_kind() const { return held_by_kind_; }
  std::uint64_t lost() const { return lost_; }

 private:
  using Key = std::pair<std::uint64_t, std::int64_t>;  // revision, step

  // Usually one entry.
  std::map<Key, std::vector<Record>> steps_;
  std::vector<Record> closed_;
  std::vector<Record> spare_;  // an empty vector with capacity, for the next step
  Key last_{0, -1};            // the step closed last
  std::size_t held_ = 0;
  RowsByKind held_by_kind_{};
  std::uint64_t lost_ = 0;
};

enum class Overflow {
  block,  // wait for a place, at most `max_wait` per step, then drop until the queue is half empty
  drop,   // drop at once
};

struct QueueOptions {
  std::size_t capacity = 65536;  // records, and as many histograms; 0 counts as 1
  Overflow overflow = Overflow::block;
  std::chrono::milliseconds max_wait{5000};  // all threads together, per step
};

class RecordQueue {
 public:
  // No other thread may be inside a member during the destructor.
  explicit RecordQueue(const QueueOptions& options);

  RecordQueue(const RecordQueue&) = delete;
  RecordQueue& operator=(const RecordQueue&) = delete;

  // Any thread. Returns false if the record was dropped (and counted).
  bool push(const Record& record) noexcept;

  // Each member says which thread may call it. abandon() abandons the lane, too.
  HistogramLane& histograms() noexcept { return histograms_; }
  const HistogramLane& histograms() const noexcept { return histograms_; }

  // Training thread. Both reset the time waited. end_step posts the number of the step's records and its
  // histograms to the writer, and returns the number; it posts nothing for an empty step. All pushes of a
  // step must happen before its end_step; later ones are counted as lost.
  void begin_step() noexcept;
  // Training thread. Passes the values of this step's records that have kLate; the writer thread waits for
  // them.
  void set_late_values(std::shared_ptr<LateValues> late) noexcept { late_ = std::move(late); }
  std::uint64_t end_step(Revision revision, Step step) noexcept;
  // Training thread. Further records of the last ended step, before the next one ends. They take no places,
  // so pass few of them. The sinks get them in a separate call.
  void add_to_step(Revision revision, Step step, std::vector<Record> records) noexcept;
  // Instead of end_step for a step that does not count. Its records and histograms are lost.
  void drop_step(Revision revision, Step step) noexcept;
  // The writer thread reports Finished once everything before this is written.
  void end_collection(Revision revision, Step last) noexcept;

  // Any thread. Takes effect with the next push.
  void set_overflow(Overflow overflow) noexcept;
  // Any thread. From now on every push drops and counts its record, and waiting pushes give up. Records
  // already in the queue stay. Cannot be undone.
  void abandon() noexcept;

  // Any thread. For records: accepted() + dropped() is the number of push calls that have returned.
  std::uint64_t accepted() const noexcept { return accepted_.load(std::memory_order_relaxed); }
  std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }
  // True from the moment `max_wait` is used up until the queue is half empty.
  bool dropping() const noexcept { return dropping_.load(std::memory_order_relaxed); }

  // Any thread. Number of threads waiting for a place.
  int waiting() const noexcept { return waiting_.load(std::memory_order_relaxed); }

  // Any thread. Normally called by WriterThread::begin_revision. Throws only std::bad_alloc.
  void post(Marker marker);

  // Writer thread only, from here on.
  enum class WakeFor { markers, markers_or_half_full };
  // Returns when a marker is posted or, with markers_or_half_full, when the queue is half full.
  void wait(WakeFor wake);
  // Appends all pending markers.
  void take_markers(std::vector<Marker>& markers);
  // Appends up to `at_most` records and frees their places. Returns how many. 0: the queue is
  // empty, and every record pushed before the last taken markers has been taken.
  std::size_t take(std::vector<Record>& records, std::size_t at_most);

 private:
  std::int64_t take_place() noexcept;  // places left afterwards, or kNone
  std::int64_t wait_for_place() noexcept;
  bool wait_once(std::unique_lock<std::mutex>& lock);
  void reset_wait() noexcept;
  std::uint64_t close_step(StepEnded ended) noexcept;

  // Constant after construction.
  const std::int64_t capacity_;
  const std::chrono::nanoseconds max_wait_;

  ProducerLanes lanes_;       // own synchronisation
  HistogramLane histograms_;  // own synchronisation

  // Own synchronisation.
  std::atomic<Overflow> overflow_;
  alignas(64) std::atomic<std::int64_t> free_;  // free places; below 0 while a push fails
  alignas(64) std::atomic<std::uint64_t> accepted_{0};
  alignas(64) std::atomic<std::uint64_t> dropped_{0};
  std::atomic<bool> dropping_{false};
  std::atomic<bool> abandoned_{false};
  std::atomic<int> waiting_{0};  // number of waiting threads; changed under mutex_

  std::shared_ptr<LateValues> late_;   // training thread: for the step that has begun
  std::uint64_t accepted_before_ = 0;  // training thread: accepted_ at the end of the last step

  std::mutex mutex_;
  std::condition_variable place_freed_;
  std::condition_variable writer_wanted_;
  // Guarded by mutex_.
  std::vector<Marker> markers_;
  std::chrono::nanoseconds waited_{0};                   // in this step, before waiting_since_
  std::chrono::steady_clock::time_point waiting_since_;  // while waiting_ > 0
};

}  // namespace gradmon
