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

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "control/step.h"
#include "writers/queue/histogram_lane.h"
#include "writers/queue/record.h"

namespace gradmon {

class LateValues;
class ProducerLanes;
struct Marker;
struct StepEnded;

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
  explicit RecordQueue(const QueueOptions& options);
  // No other thread may be inside a member.
  ~RecordQueue();

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
  const std::unique_ptr<ProducerLanes> lanes_;  // own synchronisation

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
