// SPDX-License-Identifier: Apache-2.0
// The thread that empties the record queue. It sorts the records of a step by kind and sequence, and passes
// them to the observer and then to the sinks of their revision. An error of a
// sink is logged once and counted, and the sink is tried again later.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "control/step.h"
#include "writers/queue/record_batch.h"
#include "writers/queue/record_queue.h"
#include "writers/queue/sink.h"

namespace gradmon {

// The output that an abandoned writer thread has not written. A file whose write still hangs counts, although
// the write may yet succeed.
struct AbandonedOutput {
  RowsByKind rows{};
  std::size_t files = 0;  // other output files, and lines of the log

  std::uint64_t all_rows() const;
};

// "12 rows (2 of actv, 10 of grad_reduced) and 1 other file"
std::string to_string(const AbandonedOutput& abandoned_output);

// Shields the writer thread from a failing sink. After an error that kept no row, the sink is not
// called for a while, and its rows are lost at once. One thread; the caller passes the time.
struct Pauses {
  std::chrono::milliseconds first{100};      // twice as long after each further failure,
  std::chrono::milliseconds longest{10000};  // up to this
};

class RetryingSink {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Outcome {
    std::uint64_t written = 0;
    std::uint64_t lost = 0;
  };

  RetryingSink(std::unique_ptr<Sink> sink, Layout layout, Pauses pauses);

  // Writes the records and histograms of a step; the outcome counts both as rows. Begins the revision first
  // if that has not succeeded yet. Logs the first error of a series and the success that ends it. Histograms
  // that the sink does not keep do not count, and are not passed to it.
  Outcome write(Step step, const RecordBatch& records, const std::vector<Histogram>& histograms, Time now);
  Outcome write(Step step, const RecordBatch& records, Time now) { return write(step, records, {}, now); }
  const Sink& sink() const { return *sink_; }
  void flush();

  // The last error; empty if there was none.
  const std::string& error() const { return error_; }

 private:
  SinkError try_write(Step step, const RecordBatch& records, const std::vector<Histogram>& histograms);
  void mark_failed(std::string error);
  void recover();

  std::unique_ptr<Sink> sink_;
  const Layout layout_;
  const Pauses pauses_;
  bool revision_begun_ = false;
  bool failing_ = false;
  std::string error_;
  std::uint64_t lost_ = 0;  // while failing
  std::chrono::milliseconds pause_{0};
  Time retry_at_{};
};

// Writes output files other than sinks' files. A file that cannot be written is kept and retried after a
// pause. One thread; the caller passes the time.
class RetryingFiles {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kMostKept = 16;  // above it the oldest is dropped, with a log line

  // `should_continue` is called before each retry; false: no retry. Null: always retry.
  explicit RetryingFiles(Pauses pauses, std::function<bool()> should_continue = nullptr)
      : pauses_(pauses), should_continue_(std::move(should_continue)) {}

  // An exception counts as an error. Logs the first error of a series and the success that ends it.
  void write(FileToWrite file, Time now);
  // Tries the failed files again, if the pause is over.
  void retry(Time now);
  // Tries all failed files now.
  void try_all();

  // The last error; empty if every file is written.
  const std::string& error() const { return error_; }
  std::size_t failed() const { return failed_.size(); }

 private:
  bool try_again(const FileToWrite& file);
  bool try_write(const FileToWrite& file);

  const Pauses pauses_;
  const std::function<bool()> should_continue_;
  std::vector<FileToWrite> failed_;
  std::string error_;
  std::chrono::milliseconds pause_{0};
  Time retry_at_{};
};

// Counted per sink: with two sinks each record counts twice.
struct WriterStatus {
  std::uint64_t written = 0;
  std::uint64_t lost = 0;  // taken from the queue and not written: a sink failed, or the step does not count
  std::string last_error;  // empty: none so far
};

class WriterThread {
 public:
  // Called on the writer thread when the step and all before it are on disk. It must return at once,
  // and must not throw or call stop().
  using OnFinished = std::function<void(Revision, Step)>;

  // Starts the thread ("gradmon-writer", all signals blocked). The queue is shared, because a thread
  // that hangs in a dead file system outlives this object. Throws std::system_error if no thread can
  // be started.
  WriterThread(std::shared_ptr<RecordQueue> queue, OnFinished on_finished, const Pauses& pauses = {});
  // stop(2 s).
  ~WriterThread();

  WriterThread(const WriterThread&) = delete;
  WriterThread& operator=(const WriterThread&) = delete;

  // Training thread, before the first record of the revision. The sinks of the previous revision are
  // flushed and closed once their last step is written. `observer` may be null. `amend`, if not null, may
  // change the records of a step before observer and sinks see them; it must not throw.
  void begin_revision(Layout layout, std::vector<std::unique_ptr<Sink>> sinks,
                      std::unique_ptr<StepObserver> observer = nullptr,
                      std::function<void(RecordBatch&)> amend = nullptr) noexcept;

  // Any thread. Calls `write` on the writer thread after everything posted before is written. A failure is
  // logged, shown in the status, and retried after a pause. At most 1,000 may wait; further ones are refused,
  // which is logged. False: refused.
  bool write_file(std::function<tl::expected<void, std::string>()> write) noexcept;

  // A file's write calls this function in between if it can take seconds: stop() sees progress. False: the
  // thread is abandoned; the rest of the file must not be written. Any thread. May outlive this object.
  std::function<bool()> progress() const;

  // The limits of stop(): it waits until `stalled` after the thread's last progress (a file written, or the
  // rows of one kind), without the time for which the whole process was stopped, but no longer than `in_all`.
  // `slow` is called once after 2 s.
  struct StopTimeout {
    std::chrono::milliseconds stalled{2000};
    std::chrono::milliseconds in_all{30'000};
    std::function<void()> slow = nullptr;
  };

  // Training thread. Abandons the queue, writes all ended steps, closes the sinks and joins. A step
  // that has not ended is lost. Returns false on timeout: the thread is abandoned, ends as soon as it
  // can, and no longer calls on_finished. Later calls, and calls in a forked child, do nothing and
  // return true.
  bool stop(const StopTimeout& timeout) noexcept;
  // Waits at most `at_most`, even if the thread makes progress.
  bool stop(std::chrono::milliseconds at_most) noexcept { return stop({at_most, at_most, nullptr}); }
  // Any thread. Rows and files left unwritten by a stop() that returned false; the status counts the
  // rows as lost.
  AbandonedOutput abandoned_output() const;

  // Any thread.
  WriterStatus status() const;

 private:
  struct State;
  bool wait_for_end(const StopTimeout& timeout) noexcept;

  const int pid_;                       // of the process that has the thread
  const std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace gradmon
