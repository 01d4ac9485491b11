// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/writer_thread.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <variant>

#include "control/log.h"
#include "control/signals_blocked.h"

namespace gradmon {
namespace {

std::string counted(std::uint64_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

constexpr std::size_t kMostFilesPending = 1000;
constexpr std::chrono::seconds kStuckAfter{2};

}  // namespace

std::uint64_t AbandonedOutput::all_rows() const {
  return std::accumulate(rows.begin(), rows.end(), std::uint64_t{0});
}

std::string to_string(const AbandonedOutput& abandoned_output) {
  std::string kinds;
  const auto add = [&](std::uint64_t count, const std::string& kind) {
    if (count > 0) kinds += (kinds.empty() ? "" : ", ") + std::to_string(count) + " of " + kind;
  };
  for (std::size_t kind = 0; kind < kKinds; ++kind) add(abandoned_output.rows[kind], kKindNames[kind]);
  std::string text = counted(abandoned_output.all_rows(), "row");
  if (!kinds.empty()) text += " (" + kinds + ")";
  if (abandoned_output.files > 0) text += " and " + counted(abandoned_output.files, "other file");
  return text;
}

RetryingSink::RetryingSink(std::unique_ptr<Sink> sink, Layout layout, Pauses pauses)
    : sink_(std::move(sink)), layout_(std::move(layout)), pauses_(pauses) {}

RetryingSink::Outcome RetryingSink::write(Step step, const RecordBatch& records,
                                          const std::vector<Histogram>& histograms, Time now) {
  static const std::vector<Histogram> none;
  const std::vector<Histogram>& kept = sink_->keeps_histograms() ? histograms : none;
  const std::uint64_t count = records.size() + kept.size();
  if (count == 0 && !histograms.empty()) return {};
  if (failing_ && now < retry_at_) {
    lost_ += count;
    return {0, count};
  }
  SinkError error = try_write(step, records, kept);
  if (error.text.empty()) {
    recover();
    return {count, 0};
  }
  const std::uint64_t lost = std::min(error.rows_lost, count);
  mark_failed(std::move(error.text));
  lost_ += lost;
  const bool kept_nothing = lost == count;
  pause_ = kept_nothing ? std::clamp(pause_ * 2, pauses_.first, pauses_.longest) : pause_.zero();
  retry_at_ = now + pause_;
  return {count - lost, lost};
}

void RetryingSink::flush() {
  try {
    if (auto done = sink_->flush(); !done) mark_failed(std::move(done.error().text));
  } catch (const std::exception& e) {
    mark_failed(e.what());
  }
}

// An empty text means success. After an error with the records, the histograms are lost, too.
SinkError RetryingSink::try_write(Step step, const RecordBatch& records,
                                  const std::vector<Histogram>& histograms) {
  const std::uint64_t all = records.size() + histograms.size();
  try {
    if (!revision_begun_) {
      if (auto begun = sink_->begin_revision(layout_); !begun) return {begun.error().text, all};
      revision_begun_ = true;
    }
    if (!records.empty() || histograms.empty()) {
      if (auto written = sink_->write_step(step, records); !written)
        return {std::move(written.error().text), written.error().rows_lost + histograms.size()};
    }
    if (!histograms.empty()) {
      if (auto written = sink_->write_histograms(step, histograms); !written)
        return std::move(written.error());
    }
    return {};
  } catch (const std::exception& e) {
    return {e.what(), all};
  }
}

void RetryingSink::mark_failed(std::string error) {
  error_ = std::string(sink_->name()) + ": " + std::move(error);
  if (!std::exchange(failing_, true)) log_error(error_);
}

void RetryingSink::recover() {
  pause_ = pause_.zero();
  error_.clear();
  if (!std::exchange(failing_, false)) return;
  log_info(std::string(sink_->name()) + ": writing works again; " + std::to_string(std::exchange(lost_, 0)) +
           " rows were lost");
}

void RetryingFiles::write(FileToWrite file, Time now) {
  if (try_write(file)) return;
  if (failed_.empty()) {
    log_error(error_ + "; will retry");
    pause_ = pauses_.first;
    retry_at_ = now + pause_;
  }
  if (failed_.size() == kMostKept) {
    log_error("more than " + std::to_string(kMostKept) + " unwritable files: dropped the oldest");
    failed_.erase(failed_.begin());
  }
  failed_.push_back(std::move(file));
}

void RetryingFiles::retry(Time now) {
  if (failed_.empty() || now < retry_at_) return;
  pause_ = std::min(pause_ * 2, pauses_.longest);
  retry_at_ = now + pause_;
  try_all();
}

void RetryingFiles::try_all() {
  if (failed_.empty()) return;
  failed_.erase(
      std::remove_if(failed_.begin(), failed_.end(), [this](const auto& f) { return try_again(f); }),
      failed_.end());
  if (!failed_.empty()) return;
  log_warn("all pending files are written");
  error_.clear();
}

bool RetryingFiles::try_again(const FileToWrite& file) {
  return (!should_continue_ || should_continue_()) && try_write(file);
}

bool RetryingFiles::try_write(const FileToWrite& file) {
  try {
    const auto written = file.write();
    if (written) return true;
    error_ = written.error();
  } catch (const std::exception& error) {
    error_ = std::string("a file is not written: ") + error.what();
  }
  return false;
}

struct WriterThread::State {
  using Clock = std::chrono::steady_clock;

  State(std::shared_ptr<RecordQueue> q, OnFinished f, const Pauses& p)
      : queue(std::move(q)),
        on_finished(std::move(f)),
        pauses(p),
        files(p, [this] { return should_continue(); }) {}

  void run() {
    for (bool going = true; going && !is_abandoned();) {
      set_idle();
      Marker marker = queue->wait();
      going = !is_abandoned() && handle(marker);
    }
    close_sinks();
  }

  void thread_main() noexcept {
    try {
      run();
    } catch (const std::exception& e) {
      log_error(std::string("the writer thread has failed: ") + e.what());
      queue->abandon();
      const std::lock_guard lock(mutex);
      failed = true;
      status.last_error = std::string("the writer thread has failed: ") + e.what();
    }
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }

  // False: the marker was WriterStopped.
  bool handle(Marker& marker) {
    note_progress();
    if (auto* begun = std::get_if<RevisionBegun>(&marker.message)) begin(*begun);
    if (auto* step = std::get_if<StepEnded>(&marker.message)) write(*step);
    if (auto* collection = std::get_if<CollectionEnded>(&marker.message)) finish(*collection);
    if (auto* file = std::get_if<FileToWrite>(&marker.message)) write(*file);
    return !std::holds_alternative<WriterStopped>(marker.message);
  }

  void begin(RevisionBegun& begun) {
    for (RetryingSink& sink : sinks) sink.flush();
    sinks.clear();
    amend = std::move(begun.amend);
    observer = std::move(begun.observer);
    observe([&] { observer->begin_revision(begun.layout); });
    for (auto& sink : begun.sinks) {
      sink->report_parts([this](Kind kind, std::uint64_t rows) { return note_part(kind, rows); });
      sinks.emplace_back(std::move(sink), begun.layout, pauses);
    }
  }

  // Calls the observer, if there is one.
  template <typename Call>
  void observe(Call call) {
    if (!observer) return;
    try {
      call();
    } catch (const std::exception& e) {
      log_error(std::string("no alerts until the config changes: ") + e.what());
      observer.reset();
    }
  }

  void write(StepEnded& batch) {
    take(batch);
    RetryingSink::Outcome sum{0, batch.records.size() + batch.histograms.size()};
    std::vector<FileToWrite> due;
    if (batch.valid) await(batch.late.get());
    if (batch.valid && !is_abandoned()) {
      for (auto* records : {&batch.records, &batch.flight, &batch.replicas})
        complete_records(*records, batch.late.get());
      if (amend) amend(batch.records);
      if (amend) amend(batch.flight);
      observe([&] { due = observe_step(batch); });
      if (batch.rows != RowsByKind{}) sum = write_to_sinks(batch.step, batch.records, batch.histograms);
    }
    publish(sum);  // Before the files: a file that hangs must not make written rows lost.
    files.retry(std::chrono::steady_clock::now());
    for (FileToWrite& file : due) {
      if (!is_abandoned()) files.write(std::move(file), std::chrono::steady_clock::now());
    }
    publish({});
    queue->recycle(std::move(batch));
  }

  // Returns the files to write after the rows.
  std::vector<FileToWrite> observe_step(const StepEnded& batch) {
    std::vector<FileToWrite> due;
    const auto now = std::chrono::steady_clock::now();
    if (batch.rows != RowsByKind{}) {
      if (auto file = observer->on_step(batch.step, batch.records, now)) due.push_back(std::move(*file));
    }
    if (!batch.flight.empty()) {
      if (auto file = observer->on_flight(batch.step, batch.flight, now)) due.push_back(std::move(*file));
    }
    if (!batch.replicas.empty()) observer->on_replicas(batch.step, batch.replicas);
    return due;
  }

  // Makes room for later batches, and sorts this one. Its rows are unwritten until the next publish().
  void take(StepEnded& batch) {
    {
      const std::lock_guard lock(mutex);
      unwritten = batch.rows;
      queue->release(batch);
    }
    for (auto* records : {&batch.records, &batch.flight, &batch.replicas}) records->sort();
    std::stable_sort(batch.histograms.begin(), batch.histograms.end(),
                     [](const Histogram& a, const Histogram& b) { return a.kind < b.kind; });
  }

  void await(LateValues* late) {
    constexpr std::chrono::microseconds kPause{200};
    while (late != nullptr && !late->ready() && !is_abandoned()) {
      note_progress();  // Assumes that the device makes progress.
      std::this_thread::sleep_for(kPause);
    }
  }

  // Rows that no sink keeps are lost.
  RetryingSink::Outcome write_to_sinks(Step step, const RecordBatch& records,
                                       const std::vector<Histogram>& histograms) {
    RetryingSink::Outcome sum;
    const bool kept = std::any_of(sinks.begin(), sinks.end(),
                                  [](const RetryingSink& sink) { return sink.sink().keeps_histograms(); });
    if (sinks.empty()) sum.lost += records.size();
    if (!kept) sum.lost += histograms.size();
    for (RetryingSink& sink : sinks) {
      if (is_abandoned()) break;
      const auto outcome = sink.write(step, records, histograms, std::chrono::steady_clock::now());
      if (!sink.sink().counts()) continue;
      sum.written += outcome.written;
      sum.lost += outcome.lost;
    }
    return sum;
  }

  void write(FileToWrite& file) {
    files.write(std::move(file), std::chrono::steady_clock::now());
    {
      const std::lock_guard lock(mutex);
      --files_pending;
      if (files_pending == 0) files_refused = 0;
    }
    publish({});
  }

  // Any thread. False: too many wait.
  bool take_place_for_file() {
    std::uint64_t refused = 0;
    {
      const std::lock_guard lock(mutex);
      files_pending < kMostFilesPending ? ++files_pending : refused = ++files_refused;
    }
    if (refused == 1)
      log_warn("more than " + std::to_string(kMostFilesPending) +
               " files or log lines wait for a slow disk; further ones are dropped");
    return refused == 0;
  }

  void publish(const RetryingSink::Outcome& outcome) {
    const std::lock_guard lock(mutex);
    if (abandoned) return;  // abandon() has already counted the rest as lost.
    unwritten = {};
    files_failed = files.failed();
    status.written += outcome.written;
    status.lost += outcome.lost;
    if (!sinks.empty()) sink_error.clear();
    for (const RetryingSink& sink : sinks) {
      if (!sink.error().empty()) sink_error = sink.error();
    }
    status.last_error = !sink_error.empty() ? sink_error : files.error();
    if (status.last_error.empty() && files_refused > 0) {
      status.last_error = std::to_string(files_refused) + " files or log lines dropped: more than " +
                          std::to_string(kMostFilesPending) + " were waiting";
    }
  }

  void finish(const CollectionEnded& collection) {
    for (RetryingSink& sink : sinks) sink.flush();
    publish({});
    if (!on_finished) return;
    {
      const std::lock_guard lock(mutex);
      if (abandoned) return;
      reporting = true;
    }
    try {
      on_finished(collection.revision, collection.last);
    } catch (const std::exception& e) {
      log_error(std::string("cannot report the end of a collection: ") + e.what());
    }
    const std::lock_guard lock(mutex);
    reporting = false;
    changed.notify_all();
  }

  void close_sinks() {
    if (!is_abandoned()) {
      for (RetryingSink& sink : sinks) sink.flush();
      files.try_all();
    }
    publish({});
    sinks.clear();
  }

  void note_progress() {
    const std::lock_guard lock(mutex);
    ++progress;
    busy_since = Clock::now();
  }

  void set_idle() {
    const std::lock_guard lock(mutex);
    busy_since.reset();
  }

  bool should_continue() {
    note_progress();
    return !is_abandoned();
  }

  bool note_part(Kind kind, std::uint64_t rows) {
    const std::lock_guard lock(mutex);
    ++progress;
    busy_since = Clock::now();
    std::uint64_t& left = unwritten[static_cast<std::size_t>(kind)];
    left -= std::min(left, rows);
    return !abandoned;
  }

  bool is_abandoned() const {
    const std::lock_guard lock(mutex);
    return abandoned;
  }

  // Call it with the mutex held.
  void abandon() {
    abandoned = true;
    abandoned_output = left_over();
    status.lost += abandoned_output.all_rows();
  }

  // Call it with the mutex held.
  AbandonedOutput left_over() const {
    AbandonedOutput left{queue->rows(), files_pending + files_failed};
    for (std::size_t kind = 0; kind < kKinds; ++kind) left.rows[kind] += unwritten[kind];
    return left;
  }

  // Constant after construction.
  const std::shared_ptr<RecordQueue> queue;
  const OnFinished on_finished;
  const Pauses pauses;

  std::thread thread;  // training thread only; joinable until stop()

  mutable std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  WriterStatus status;
  bool ended = false;          // the thread is about to return
  bool failed = false;         // it has ended by an exception; nothing takes records from now on
  bool abandoned = false;      // stop() has timed out
  bool reporting = false;      // on_finished is running
  std::uint64_t progress = 0;  // rises with each message and each part of a batch
  std::optional<Clock::time_point> busy_since;  // time of the last progress; empty: idle
  RowsByKind unwritten{};                       // taken, not yet written or lost
  AbandonedOutput abandoned_output;             // set when abandoned
  std::size_t files_pending = 0;                // not tried yet
  std::size_t files_failed = 0;                 // tried and failed; kept for a retry
  std::uint64_t files_refused = 0;              // since files_pending was last 0

  // Writer thread only.
  std::vector<RetryingSink> sinks;
  std::unique_ptr<StepObserver> observer;   // null: the revision has none, or it has failed
  std::function<void(RecordBatch&)> amend;  // of the revision; may be null
  std::string sink_error;  // of the current sinks; while there are none, of the previous ones
  RetryingFiles files;
};

WriterThread::WriterThread(std::shared_ptr<RecordQueue> queue, OnFinished on_finished, const Pauses& pauses)
    : pid_(::getpid()), state_(std::make_shared<State>(std::move(queue), std::move(on_finished), pauses)) {
  const SignalsBlocked blocked;
  state_->thread = std::thread([state = state_] {
    pthread_setname_np(pthread_self(), "gradmon-writer");
    state->thread_main();
  });
}

WriterThread::~WriterThread() { stop(std::chrono::seconds(2)); }

void WriterThread::begin_revision(Layout layout, std::vector<std::unique_ptr<Sink>> sinks,
                                  std::unique_ptr<StepObserver> observer,
                                  std::function<void(RecordBatch&)> amend) noexcept {
  try {
    state_->queue->post(
        Marker{RevisionBegun{std::move(layout), std::move(sinks), std::move(observer), std::move(amend)}});
  } catch (const std::exception& e) {
    log_error(std::string("a revision's records will be lost: ") + e.what());
  }
}

bool WriterThread::write_file(std::function<tl::expected<void, std::string>()> write) noexcept {
  if (!state_->take_place_for_file()) return false;
  try {
    state_->queue->post(Marker{FileToWrite{std::move(write)}});
    return true;
  } catch (const std::exception& e) {
    log_error(std::string("a file will not be written: ") + e.what());
    const std::lock_guard lock(state_->mutex);
    --state_->files_pending;
    return false;
  }
}

std::function<bool()> WriterThread::progress() const {
  return [state = std::weak_ptr<State>(state_)] {
    const auto alive = state.lock();
    return !alive || alive->should_continue();
  };
}

bool WriterThread::stop(const StopTimeout& timeout) noexcept {
  if (!state_->thread.joinable()) return true;
  if (::getpid() != pid_) {
    // A forked child: the thread does not exist here, and its locks may stay held for ever. Leak the
    // state, so that nothing destroys the joinable std::thread.
    (void)new std::shared_ptr<State>(state_);
    return true;
  }
  state_->queue->abandon();
  state_->queue->begin_step();  // A step that has not ended is lost.
  try {
    state_->queue->post(Marker{WriterStopped{}});
  } catch (const std::exception&) {
    return wait_for_end({std::chrono::milliseconds{0}, std::chrono::milliseconds{0}, nullptr});
  }
  return wait_for_end(timeout);
}

bool WriterThread::wait_for_end(const StopTimeout& timeout) noexcept {
  using Time = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds look{50};
  constexpr std::chrono::seconds slow_after{2};
  const auto begun = Time::now();
  auto last_look = begun;
  Time::duration without_progress{0};
  bool said = timeout.slow == nullptr;
  std::unique_lock lock(state_->mutex);
  for (std::uint64_t seen = state_->progress; !state_->ended;) {
    const auto now = Time::now();
    // A whole process that was stopped, or waits for a CPU, is not a stalled writer.
    without_progress += std::min<Time::duration>(now - last_look, 2 * look);
    last_look = now;
    if (seen != state_->progress) without_progress = {};
    seen = state_->progress;
    if (without_progress >= timeout.stalled || now - begun >= timeout.in_all) break;
    if (!said && now - begun >= slow_after) {
      said = true;
      lock.unlock();
      timeout.slow();
      lock.lock();
    }
    state_->changed.wait_for(lock, std::min<std::chrono::steady_clock::duration>(look, timeout.stalled),
                             [this] { return state_->ended; });
  }
  const bool ended = state_->ended;
  if (!ended) state_->abandon();
  if (!ended) state_->changed.wait(lock, [this] { return !state_->reporting; });
  lock.unlock();
  ended ? state_->thread.join() : state_->thread.detach();
  return ended;
}

AbandonedOutput WriterThread::abandoned_output() const {
  const std::lock_guard lock(state_->mutex);
  return state_->abandoned_output;
}

WriterStatus WriterThread::status() const {
  const std::lock_guard lock(state_->mutex);
  WriterStatus status = state_->status;
  if (state_->failed && !state_->abandoned) status.lost += state_->left_over().all_rows();
  if (!state_->busy_since) return status;
  const auto stuck =
      std::chrono::duration_cast<std::chrono::seconds>(State::Clock::now() - *state_->busy_since);
  if (stuck < kStuckAfter) return status;
  const std::string before = status.last_error.empty() ? "" : "; " + status.last_error;
  status.last_error = "the writer has made no progress for " + std::to_string(stuck.count()) + " s" + before;
  return status;
}

}  // namespace gradmon
