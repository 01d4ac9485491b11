// SPDX-License-Identifier: Apache-2.0
// The bounded way from hooks to the writer thread. A full queue means: wait, or
// drop, as its Overflow says; whatever is dropped is counted. While steady, push
// takes no lock, allocates nothing and makes no system call.
//
// A step, as the training program sees it:
//   queue.begin_step();                       // training thread
//   queue.push(record);                       // any thread, before end_step
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
#include <vector>

#include "control/step.h"
#include "writers/queue/record.h"

namespace gradmon {

class ProducerLanes;
struct Marker;
struct StepEnded;

enum class Overflow {
  block,  // wait for a place, `patience` in one step at most, then drop until the queue is half empty
  drop,   // drop at once
};

struct QueueOptions {
  std::size_t capacity = 65536;  // records; 0 counts as 1
  Overflow overflow = Overflow::block;
  std::chrono::milliseconds patience{5000};  // of a step, in which any thread waits
};

class RecordQueue {
 public:
  explicit RecordQueue(const QueueOptions& options);
  // No other thread is inside any member by now.
  ~RecordQueue();

  RecordQueue(const RecordQueue&) = delete;
  RecordQueue& operator=(const RecordQueue&) = delete;

  // Any thread. False: the record was dropped, and counted.
  bool push(const Record& record) noexcept;

  // The training thread. Each of the two refills the patience; end_step also
  // tells the writer how many records of the step there are, and returns it
  // (the writer hears nothing of a step without). Every push of the
  // step happens before its end_step; one that comes later is counted lost.
  void begin_step() noexcept;
  std::uint64_t end_step(Revision revision, Step step) noexcept;
  // In its place where the step does not count: its records are lost.
  void drop_step(Revision revision, Step step) noexcept;
  // The writer thread reports Finished once all before this is written.
  void end_collection(Revision revision, Step last) noexcept;

  // Any thread. Takes effect with the next push.
  void set_overflow(Overflow overflow) noexcept;
  // Any thread. From now on every push drops at once and is counted, and those
  // that wait for a place give up. What is in the queue stays. For ever.
  void abandon() noexcept;

  // Any thread. accepted + dropped = calls of push that have returned.
  std::uint64_t accepted() const noexcept { return accepted_.load(std::memory_order_relaxed); }
  std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }
  // True from the end of patience until the queue is half empty.
  bool dropping() const noexcept { return dropping_.load(std::memory_order_relaxed); }

  // Any thread. Threads that wait for a place just now.
  int waiting() const noexcept { return waiting_.load(std::memory_order_relaxed); }

  // Any thread; WriterThread::begin_revision is the usual door. Throws only
  // std::bad_alloc.
  void post(Marker marker);

  // The writer thread alone, from here on.
  enum class WakeFor { markers, markers_or_half_full };
  // Returns when there is a marker, or the queue is half full if that is asked for.
  void wait(WakeFor wake);
  // Appends all markers there are.
  void take_markers(std::vector<Marker>& markers);
  // Appends up to `at_most` records and gives their places back. 0: there was
  // none, and every record pushed before the markers last taken has been taken.
  std::size_t take(std::vector<Record>& records, std::size_t at_most);

 private:
  std::int64_t take_place() noexcept;  // places left afterwards, or kNone
  std::int64_t wait_for_place() noexcept;
  bool wait_once(std::unique_lock<std::mutex>& lock);
  void refill_patience() noexcept;
  std::uint64_t close_step(StepEnded ended) noexcept;

  // Constant after construction.
  const std::int64_t capacity_;
  const std::chrono::nanoseconds patience_;
  const std::unique_ptr<ProducerLanes> lanes_;  // own synchronisation

  // Own synchronisation.
  std::atomic<Overflow> overflow_;
  alignas(64) std::atomic<std::int64_t> free_;  // places; below 0 while a push is turned away
  alignas(64) std::atomic<std::uint64_t> accepted_{0};
  alignas(64) std::atomic<std::uint64_t> dropped_{0};
  std::atomic<bool> dropping_{false};
  std::atomic<bool> abandoned_{false};
  std::atomic<int> waiting_{0};  // threads that wait for a place; changed under mutex_

  std::uint64_t accepted_before_ = 0;  // training thread: accepted_ when the last step ended

  std::mutex mutex_;
  std::condition_variable place_freed_;
  std::condition_variable writer_wanted_;
  // Guarded by mutex_.
  std::vector<Marker> markers_;
  std::chrono::nanoseconds waited_{0};                   // of this step, before waiting_since_
  std::chrono::steady_clock::time_point waiting_since_;  // while waiting_ > 0
};

}  // namespace gradmon
