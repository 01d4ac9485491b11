// SPDX-License-Identifier: Apache-2.0
// The thread that empties the queue: it gathers the records of a step, orders
// them by kind and sequence once all are in, and hands them to the sinks of
// their revision. An error in a sink is logged once, counted and waited out; it
// goes no further.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/step.h"
#include "writers/queue/given_up.h"
#include "writers/queue/guarded_sink.h"
#include "writers/queue/record_queue.h"
#include "writers/queue/sink.h"

namespace gradmon {

// Counted per sink: with two sinks each record counts twice.
struct WriterStatus {
  std::uint64_t written = 0;
  std::uint64_t lost = 0;  // taken from the queue, and not written: sink in error, or after the step's end
  std::string last_error;  // empty: none so far
};

struct WriterOptions {
  std::size_t most_held = std::size_t{1} << 20;  // records of unfinished steps; beyond it the queue fills up
  Pauses pauses;
};

class WriterThread {
 public:
  // Called from the writer thread when the step is on disk, and all before it.
  // It must be brief, must not throw and must not call stop.
  using OnFinished = std::function<void(Revision, Step)>;

  // Starts the thread ("gradmon-writer", all signals blocked). The queue is
  // shared, as are the names that sinks read: a thread that hangs in a dead
  // file system outlives this object. Throws std::system_error where there is no
  // thread to be had.
  WriterThread(std::shared_ptr<RecordQueue> queue, OnFinished on_finished, const WriterOptions& options = {});
  // stop(2 s).
  ~WriterThread();

  WriterThread(const WriterThread&) = delete;
  WriterThread& operator=(const WriterThread&) = delete;

  // The training thread, before the first record of the revision. The sinks of
  // the revision before are flushed and closed once their last step is written.
  void begin_revision(Layout layout, std::vector<std::unique_ptr<Sink>> sinks) noexcept;

  // Any thread. `write` is called on the writer thread after what was said before
  // is written; where it fails it is logged, stands in the status, and is called
  // again after a pause. A thousand that wait are the most: more are not taken.
  void write_file(std::function<tl::expected<void, std::string>()> write) noexcept;

  // How long stop() waits: `stalled` after the thread's last progress (a file that is
  // written, or the rows of a kind in a step), and no longer than `in_all`; `slow` is
  // called once where it takes more than 2 s.
  struct Patience {
    std::chrono::milliseconds stalled{2000};
    std::chrono::milliseconds in_all{30'000};
    std::function<void()> slow = nullptr;
  };

  // The training thread. Abandons the queue, writes all steps that have ended,
  // closes the sinks and joins. A step that has not ended is lost. False: time
  // was up; the thread is left to itself, gives up at its next chance, and
  // on_finished is not called any more. Later calls, and those in a forked
  // child, do nothing.
  bool stop(const Patience& patience) noexcept;
  // Whether there is progress or not.
  bool stop(std::chrono::milliseconds at_most) noexcept { return stop({at_most, at_most, nullptr}); }
  // Any thread. What the stop that said false has left unwritten, lost in the status.
  GivenUp given_up() const;

  // Any thread.
  WriterStatus status() const;

 private:
  struct State;
  bool wait_for_end(const Patience& patience) noexcept;

  const int pid_;                       // whose process the thread is in
  const std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace gradmon
