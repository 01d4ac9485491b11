// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/step_observer.h"

#include <mutex>
#include <stdexcept>
#include <string>

#include "control/debian_version.h"
#include "tests/writers/sample_records.h"
#include "writers/queue/writer_thread.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;
using namespace std::chrono_literals;

namespace {

// Calls of the observer, the sink and the files, as words.
class Calls {
 public:
  void add(const std::string& word) {
    const std::lock_guard lock(mutex_);
    text_ += word + " ";
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

class LoggingObserver : public StepObserver {
 public:
  explicit LoggingObserver(std::shared_ptr<Calls> calls, std::int64_t fails_at = -1)
      : calls_(std::move(calls)), fails_at_(fails_at) {}
  void begin_revision(const Layout& layout) override {
    calls_->add("begun:" + std::to_string(layout.revision.value));
  }
  std::optional<FileToWrite> on_step(Step step, const std::vector<Record>& records, Time) override {
    calls_->add("seen:" + std::to_string(step.value) + "=" + std::to_string(records.size()));
    if (step.value == fails_at_) throw std::runtime_error("planted");
    if (step.value % 2 == 0) return std::nullopt;
    return FileToWrite{[calls = calls_, step]() -> tl::expected<void, std::string> {
      calls->add("file:" + std::to_string(step.value));
      return {};
    }};
  }

 private:
  const std::shared_ptr<Calls> calls_;
  const std::int64_t fails_at_;
};

class LoggingSink : public Sink {
 public:
  explicit LoggingSink(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}
  const char* name() const override { return "logging"; }
  tl::expected<void, SinkError> begin_revision(const Layout&) override { return {}; }
  tl::expected<void, SinkError> write_step(Step step, const std::vector<Record>&) override {
    calls_->add("rows:" + std::to_string(step.value));
    return {};
  }
  tl::expected<void, SinkError> flush() override { return {}; }

 private:
  const std::shared_ptr<Calls> calls_;
};

void begin(WriterThread& writer, std::uint64_t revision, const std::shared_ptr<Calls>& calls,
           std::unique_ptr<StepObserver> observer) {
  Layout layout;
  layout.revision = Revision{revision};
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::make_unique<LoggingSink>(calls));
  writer.begin_revision(layout, std::move(sinks), std::move(observer));
}

void push_step(RecordQueue& queue, std::uint64_t revision, std::int64_t step) {
  queue.push(plain_record(step, 1, revision));
  queue.push(plain_record(step, 0, revision));
  queue.end_step(Revision{revision}, Step{step});
}

}  // namespace

TEST_CASE("an observer sees each step before the sinks and its file is written after the rows") {
  const auto calls = std::make_shared<Calls>();
  const auto queue = std::make_shared<RecordQueue>(QueueOptions{});
  WriterThread writer(queue, nullptr);
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
        "begun:1 seen:1=2 rows:1 file:1 seen:2=2 rows:2 rows:4 begun:3 seen:5=2 rows:5 file:5 ");
}

TEST_CASE("an observer that throws is not called again and no row is lost") {
  const auto calls = std::make_shared<Calls>();
  const auto queue = std::make_shared<RecordQueue>(QueueOptions{});
  WriterThread writer(queue, nullptr);
  begin(writer, 1, calls, std::make_unique<LoggingObserver>(calls, 1));
  push_step(*queue, 1, 1);
  push_step(*queue, 1, 2);
  REQUIRE(writer.stop(60s));
  CHECK(calls->text() == "begun:1 seen:1=2 rows:1 rows:2 ");
  CHECK(writer.status().written == 4);
}
