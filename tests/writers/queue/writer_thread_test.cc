// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/writer_thread.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <new>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/resource_limit.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/files_in.h"
#include "tests/writers/sample_records.h"
#include "writers/queue/sink.h"
#include "writers/sinks/csv_sink.h"
#include "writers/sinks/memory_sink.h"

using namespace gradmon;
using namespace std::chrono_literals;

namespace {

// The calls of sinks, as words. Any thread.
class CallLog {
 public:
  void add(const std::string& word) {
    const std::lock_guard lock(mutex_);
    text_ += word + " ";
    changed_.notify_all();
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  // False: the word was not there within a minute.
  bool wait_for(const std::string& word) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 60s, [&] { return text_.find(word + " ") != std::string::npos; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
};

class LoggingSink : public Sink {
 public:
  LoggingSink(std::shared_ptr<CallLog> calls, std::string name)
      : calls_(std::move(calls)), name_(std::move(name)) {}
  ~LoggingSink() override { calls_->add(name_ + ":closed"); }
  const char* name() const override { return name_.c_str(); }
  tl::expected<void, SinkError> begin_revision(const Layout&) override {
    calls_->add(name_ + ":begun");
    return {};
  }
  tl::expected<void, SinkError> write_step(Step step, const RecordBatch& records) override {
    std::ostringstream word;
    word << name_ << ":" << step.value;
    const char* before = "=";
    for (const Record& record : records) word << std::exchange(before, "+") << record.sequence;
    calls_->add(word.str());
    return {};
  }
  tl::expected<void, SinkError> flush() override {
    calls_->add(name_ + ":flushed");
    return {};
  }

 private:
  const std::shared_ptr<CallLog> calls_;
  const std::string name_;
};

// Logs histograms as "a:1:update=3+4", with their targets.
class HistogramSink : public LoggingSink {
 public:
  HistogramSink(std::shared_ptr<CallLog> calls, const std::string& name)
      : LoggingSink(calls, name), calls_(std::move(calls)) {}
  bool keeps_histograms() const override { return true; }
  tl::expected<void, SinkError> write_histograms(Step step,
                                                 const std::vector<Histogram>& histograms) override {
    std::ostringstream word;
    word << name() << ":" << step.value;
    for (const Histogram& histogram : histograms)
      word << (&histogram == histograms.data() ? ":" : "+") << name_of(histogram.kind) << "="
           << histogram.target;
    calls_->add(word.str());
    return {};
  }

 private:
  const std::shared_ptr<CallLog> calls_;
};

enum class StuckIn { write, flush };

class StuckSink : public Sink {
 public:
  StuckSink(std::shared_ptr<CallLog> calls, std::shared_future<void> release, StuckIn where)
      : calls_(std::move(calls)), release_(std::move(release)), where_(where) {}
  ~StuckSink() override { calls_->add("closed"); }
  const char* name() const override { return "stuck"; }
  tl::expected<void, SinkError> begin_revision(const Layout&) override { return {}; }
  tl::expected<void, SinkError> write_step(Step, const RecordBatch&) override {
    if (where_ == StuckIn::write) hang();
    return {};
  }
  tl::expected<void, SinkError> flush() override {
    if (where_ == StuckIn::flush) hang();
    return {};
  }

 private:
  void hang() {
    calls_->add("stuck");
    release_.wait();
  }

  const std::shared_ptr<CallLog> calls_;
  const std::shared_future<void> release_;
  const StuckIn where_;
};

std::vector<std::unique_ptr<Sink>> single_sink(std::unique_ptr<Sink> sink) {
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::move(sink));
  return sinks;
}

Layout layout(std::uint64_t revision) {
  Layout made;
  made.revision = Revision{revision};
  return made;
}

std::shared_ptr<RecordQueue> make_queue(std::size_t capacity = 1024, Overflow overflow = Overflow::block) {
  return std::make_shared<RecordQueue>(QueueOptions{capacity, overflow, 60s});
}

WriterThread::OnFinished log_finished(const std::shared_ptr<CallLog>& calls) {
  return [calls](Revision revision, Step last) {
    calls->add("finished:" + std::to_string(revision.value) + ":" + std::to_string(last.value));
  };
}

// A fixture of TEST_CASE_METHOD.
struct Writing {
  const std::shared_ptr<CallLog> calls = std::make_shared<CallLog>();
  const std::shared_ptr<RecordQueue> queue = make_queue();
  WriterThread writer{queue, nullptr};
};

// A writer that is stuck in its sink, with a row of step 1, until release() or the end of this object. The
// writer's thread outlives this object if it was abandoned.
class StuckWriter {
 public:
  explicit StuckWriter(StuckIn where = StuckIn::write, decltype(FileToWrite::write) file = nullptr,
                       const std::vector<Histogram>& histograms = {}) {
    writer = std::make_unique<WriterThread>(queue, log_finished(calls), Pauses{0ms, 0ms});
    writer->begin_revision(
        layout(1), single_sink(std::make_unique<StuckSink>(calls, release_.get_future().share(), where)));
    if (file) writer->write_file(std::move(file));
    queue->push(plain_record(1, 0));
    for (const Histogram& one : histograms) queue->push(one);
    queue->end_step(Revision{1}, Step{1});
    queue->end_collection(Revision{1}, Step{1});
    REQUIRE(calls->wait_for("stuck"));
  }
  void release() { release_.set_value(); }
  // The calls after the writer was abandoned and released.
  std::string calls_after_release() {
    writer.reset();
    queue.reset();
    release();
    REQUIRE(calls->wait_for("closed"));
    return calls->text();
  }

  const std::shared_ptr<CallLog> calls = std::make_shared<CallLog>();
  std::shared_ptr<RecordQueue> queue = make_queue(16, Overflow::drop);
  std::unique_ptr<WriterThread> writer;

 private:
  std::promise<void> release_;
};

// Logs its calls and the writing of its files: of steps with an odd number.
class LoggingObserver : public StepObserver {
 public:
  explicit LoggingObserver(std::shared_ptr<CallLog> calls, std::int64_t fails_at = -1)
      : calls_(std::move(calls)), fails_at_(fails_at) {}
  void begin_revision(const Layout& layout) override {
    calls_->add("begun:" + std::to_string(layout.revision.value));
  }
  std::optional<FileToWrite> on_step(Step step, const RecordBatch& records, Time) override {
    calls_->add("seen:" + std::to_string(step.value) + "=" + std::to_string(records.size()));
    if (step.value == fails_at_) throw std::runtime_error("planted");
    if (step.value % 2 == 0) return std::nullopt;
    return FileToWrite{[calls = calls_, step]() -> tl::expected<void, std::string> {
      calls->add("file:" + std::to_string(step.value));
      return {};
    }};
  }

 private:
  const std::shared_ptr<CallLog> calls_;
  const std::int64_t fails_at_;
};

void begin(WriterThread& writer, std::uint64_t revision, const std::shared_ptr<CallLog>& calls,
           std::unique_ptr<StepObserver> observer) {
  writer.begin_revision(layout(revision), single_sink(std::make_unique<LoggingSink>(calls, "a")),
                        std::move(observer));
}

void push_step(RecordQueue& queue, std::uint64_t revision, std::int64_t step) {
  queue.push(plain_record(step, 1, revision));
  queue.push(plain_record(step, 0, revision));
  queue.end_step(Revision{revision}, Step{step});
}

}  // namespace

TEST_CASE("steps are written whole and ordered and then the end is reported") {
  const auto calls = std::make_shared<CallLog>();
  const auto queue = make_queue();
  WriterThread writer(queue, log_finished(calls));
  writer.begin_revision(layout(1), single_sink(std::make_unique<LoggingSink>(calls, "a")));
  for (const std::int64_t step : {1, 2}) {
    queue->begin_step();
    queue->push(plain_record(step, 2));
    queue->push(plain_record(step, 0));
    queue->push(plain_record(step, 1));
    queue->end_step(Revision{1}, Step{step});
  }
  queue->end_collection(Revision{1}, Step{2});
  REQUIRE(calls->wait_for("finished:1:2"));
  CHECK(writer.stop(60s));
  CHECK(calls->text() == "a:begun a:1=0+1+2 a:2=0+1+2 a:flushed finished:1:2 a:flushed a:closed ");
  CHECK(writer.status().written == 6);
  CHECK(writer.status().lost == 0);
}

TEST_CASE_METHOD(Writing, "histograms are written after the records of their step by kind and in order") {
  writer.begin_revision(layout(1), single_sink(std::make_unique<HistogramSink>(calls, "a")));
  queue->push(plain_record(1, 0));
  queue->push(plain_histogram(1, 3));
  queue->push(plain_histogram(1, 3, Kind::ratio));
  queue->push(plain_histogram(1, 4));
  queue->end_step(Revision{1}, Step{1});
  queue->push(plain_histogram(2, 5));
  queue->end_step(Revision{1}, Step{2});
  REQUIRE(writer.stop(60s));
  CHECK(calls->text() == "a:begun a:1=0 a:1:update=3+update=4+ratio=3 a:2:update=5 a:flushed a:closed ");
  CHECK(writer.status().written == 5);
  CHECK(writer.status().lost == 0);
}

TEST_CASE_METHOD(Writing, "histograms count once for each sink that keeps them and are lost without one") {
  std::vector<std::unique_ptr<Sink>> both = single_sink(std::make_unique<LoggingSink>(calls, "a"));
  both.push_back(std::make_unique<HistogramSink>(calls, "b"));
  writer.begin_revision(layout(1), std::move(both));
  queue->push(plain_histogram(1, 3));
  queue->end_step(Revision{1}, Step{1});
  writer.begin_revision(layout(2), single_sink(std::make_unique<LoggingSink>(calls, "c")));
  queue->push(plain_record(2, 0, 2));
  queue->push(plain_histogram(2, 4));
  queue->end_step(Revision{2}, Step{2});
  REQUIRE(writer.stop(60s));
  CHECK(calls->text() ==
        "b:begun b:1:update=3 a:flushed b:flushed a:closed b:closed c:begun c:2=0 c:flushed c:closed ");
  CHECK(writer.status().written == 2);
  CHECK(writer.status().lost == 1);
}

TEST_CASE_METHOD(Writing, "rows of a step that does not count or has not ended are lost and counted") {
  writer.begin_revision(layout(1), single_sink(std::make_unique<HistogramSink>(calls, "a")));
  queue->push(plain_histogram(1, 3));
  queue->drop_step(Revision{1}, Step{1});
  queue->push(plain_histogram(2, 4));
  queue->push(plain_histogram(2, 5));
  queue->push(plain_record(2, 0));
  REQUIRE(writer.stop(60s));
  CHECK(writer.status().written == 0);
  CHECK(writer.status().lost == 1);
  CHECK(queue->dropped() == 3);
}

TEST_CASE("histograms that an abandoned thread has not written are named and counted") {
  StuckWriter stuck(StuckIn::write, nullptr, {plain_histogram(1, 3, Kind::ratio)});
  stuck.queue->push(plain_histogram(2, 4));
  stuck.queue->end_step(Revision{1}, Step{2});
  CHECK_FALSE(stuck.writer->stop(10ms));
  CHECK(to_string(stuck.writer->abandoned_output()) == "3 rows (1 of grad_reduced, 1 of update, 1 of ratio)");
  CHECK(stuck.writer->status().lost == 3);
  stuck.calls_after_release();
}

struct FailingSink : LoggingSink {
  using LoggingSink::LoggingSink;
  void report_parts(OnPart) override { throw std::bad_alloc(); }
};

TEST_CASE("rows that a writer without memory leaves are counted as lost") {
  const auto queue = make_queue(256);
  WriterThread writer(queue, nullptr);
  for (std::uint64_t i = 0; i < 3; ++i) queue->push(plain_record(1, i));
  queue->end_step(Revision{1}, Step{1});
  writer.begin_revision(layout(1),
                        single_sink(std::make_unique<FailingSink>(std::make_shared<CallLog>(), "a")));
  for (std::uint64_t i = 0; i < 4; ++i) queue->push(plain_record(2, i));
  CHECK(writer.stop(60s));
  CHECK(writer.status().lost + queue->dropped() == 7);
  CHECK(writer.status().last_error.find("the writer thread has failed") == 0);
}

TEST_CASE("rows that cannot be written are counted and reported and do not kill the process") {
  const TemporaryDirectory scratch;
  const auto queue = make_queue(65536);
  WriterThread writer(queue, nullptr);
  writer.begin_revision(layout(1), single_sink(std::make_unique<CsvSink>([&] { return scratch.path(); },
                                                                         std::make_shared<NameTable>())));
  bool stopped = false;
  {
    const ResourceLimit small(RLIMIT_FSIZE, 4096);  // the default action of SIGXFSZ is to kill the process
    for (std::uint64_t i = 0; i < 1000; ++i) queue->push(plain_record(1, i));
    queue->end_step(Revision{1}, Step{1});
    stopped = writer.stop(60s);
  }
  CHECK(stopped);
  CHECK(writer.status().lost == 1000);
  CHECK(writer.status().written == 0);
  CHECK(writer.status().last_error ==
        "csv: cannot write " + (scratch.path() / "grad_reduced_1-1.csv").string() + ": File too large");
  CHECK(files_in(scratch.path()).empty());
}

TEST_CASE("a writer stuck in a sink says so in its status until it continues") {
  StuckWriter stuck;
  const auto error = [&] { return stuck.writer->status().last_error; };
  CHECK(eventually([&] { return error().rfind("the writer has made no", 0) == 0; }));
  stuck.release();
  CHECK(eventually([&] { return error().empty(); }));
}

TEST_CASE("a writer stuck in a sink is abandoned by stop and reports nothing afterwards") {
  for (const StuckIn where : {StuckIn::write, StuckIn::flush}) {
    StuckWriter stuck(where);
    CHECK_FALSE(stuck.writer->stop(20ms));
    stuck.queue->push(plain_record(2, 0));
    CHECK(stuck.queue->end_step(Revision{1}, Step{2}).rows == 0);
    CHECK(stuck.calls_after_release() == "stuck closed ");
  }
}

TEST_CASE("an abandoned writer retries no file") {
  const auto tries = std::make_shared<std::atomic<int>>(0);
  StuckWriter stuck(StuckIn::write, [tries]() -> tl::expected<void, std::string> {
    ++*tries;
    return tl::unexpected(std::string("no room"));
  });
  CHECK_FALSE(stuck.writer->stop(20ms));
  CHECK(stuck.calls_after_release() == "stuck closed ");
  CHECK(*tries == 1);
}

TEST_CASE("files dropped in a burst are in the status until the files of the burst are written") {
  WriterThread writer(make_queue(), nullptr);
  std::promise<void> first, second;
  const auto wait_for = [&](std::promise<void>& release) {
    writer.write_file([released = release.get_future().share()]() -> tl::expected<void, std::string> {
      released.wait();
      return {};
    });
  };
  wait_for(first);
  wait_for(second);
  for (int i = 0; i < 1000; ++i)
    CHECK(writer.write_file([]() -> tl::expected<void, std::string> { return {}; }) == (i < 998));
  first.set_value();
  CHECK(eventually([&] {
    return writer.status().last_error.find("2 files or log lines dropped: more than 1000 were waiting") !=
           std::string::npos;
  }));
  second.set_value();
  CHECK(eventually([&] { return writer.status().last_error.empty(); }));
}

TEST_CASE("stop succeeds at once in a forked child") {
  const auto queue = make_queue();
  WriterThread writer(queue, nullptr);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);
    ::_exit(writer.stop(60s) ? 7 : 8);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(writer.stop(60s));
}

TEST_CASE_METHOD(Writing,
                 "an observer sees each step before the sinks and its file is written after the rows") {
  begin(writer, 1, calls, std::make_unique<LoggingObserver>(calls));
  push_step(*queue, 1, 1);
  push_step(*queue, 1, 2);
  queue->push(plain_record(3, 0));
  queue->drop_step(Revision{1}, Step{3});
  begin(writer, 2, calls, nullptr);
  push_step(*queue, 2, 4);
  begin(writer, 3, calls, std::make_unique<LoggingObserver>(calls));
  push_step(*queue, 3, 5);
  REQUIRE(writer.stop(60s));
  CHECK(calls->text() ==
        "begun:1 seen:1=2 a:begun a:1=0+1 file:1 seen:2=2 a:2=0+1 a:flushed a:closed a:begun a:4=0+1 "
        "a:flushed a:closed "
        "begun:3 seen:5=2 a:begun a:5=0+1 file:5 a:flushed a:closed ");
}

TEST_CASE_METHOD(Writing, "an observer that throws is not called again and no row is lost") {
  begin(writer, 1, calls, std::make_unique<LoggingObserver>(calls, 1));
  push_step(*queue, 1, 1);
  push_step(*queue, 1, 2);
  REQUIRE(writer.stop(60s));
  CHECK(calls->text() == "begun:1 seen:1=2 a:begun a:1=0+1 a:2=0+1 a:flushed a:closed ");
  CHECK(writer.status().written == 4);
}

TEST_CASE("abandoned rows and files are listed by kind") {
  AbandonedOutput abandoned_output;
  CHECK(to_string(abandoned_output) == "0 rows");
  abandoned_output.files = 1;
  abandoned_output.rows[static_cast<std::size_t>(Kind::actv)] = 1;
  CHECK(to_string(abandoned_output) == "1 row (1 of actv) and 1 other file");
  abandoned_output.rows[static_cast<std::size_t>(Kind::grad_reduced)] = 10;
  abandoned_output.files = 2;
  CHECK(abandoned_output.all_rows() == 11);
  CHECK(to_string(abandoned_output) == "11 rows (1 of actv, 10 of grad_reduced) and 2 other files");
}

TEST_CASE("stop waits for a slow file as long as its write reports progress") {
  for (const bool reports : {true, false}) {
    const auto written = std::make_shared<std::atomic<bool>>(false);  // the abandoned thread outlives this
    std::promise<void> release, begun;
    {
      WriterThread writer(make_queue(16), nullptr);
      writer.write_file([&begun, written, reports, released = release.get_future().share(),
                         progress = writer.progress()]() -> tl::expected<void, std::string> {
        begun.set_value();
        while (released.wait_for(10ms) != std::future_status::ready) {
          if (reports) progress();
        }
        *written = true;
        return {};
      });
      begun.get_future().wait();
      bool released = false;  // by stop(), after 2 s
      CHECK(writer.stop({1200ms, 60s, [&] {
                           released = true;
                           release.set_value();
                         }}) == reports);
      if (!released) release.set_value();
    }
    if (reports) CHECK(*written);
  }
}

TEST_CASE("a writer is not given up because the whole process was stopped") {
  std::promise<void> release, begun;
  WriterThread writer(make_queue(16), nullptr);
  writer.write_file([&begun, released = release.get_future().share()]() -> tl::expected<void, std::string> {
    begun.set_value();
    released.wait();
    return {};
  });
  begun.get_future().wait();
  int code = -1;
  std::thread pause([&] {
    code = std::system("kill -STOP $PPID && sleep 1.5; kill -CONT $PPID");
    release.set_value();
  });
  const bool ended = writer.stop({1000ms, 60s, nullptr});
  pause.join();
  REQUIRE(code == 0);
  CHECK(ended);
}

TEST_CASE("only the last step is kept") {
  const auto last = std::make_shared<LastStep>();
  CHECK(last->content().step == Step{-1});
  MemorySink sink(last);
  Layout layout;
  layout.revision = Revision{4};
  REQUIRE(sink.begin_revision(layout));
  REQUIRE(sink.write_step(Step{1}, {plain_record(1, 0), plain_record(1, 1)}));
  REQUIRE(sink.write_step(Step{2}, {plain_record(2, 7)}));
  const auto content = last->content();
  CHECK(content.layout.revision == Revision{4});
  CHECK(content.step == Step{2});
  REQUIRE(content.records.size() == 1);
  CHECK(content.records[0].sequence == 7);
}
