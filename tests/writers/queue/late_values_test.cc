// SPDX-License-Identifier: Apache-2.0
// Records whose values come after them.
#include "writers/queue/record.h"

#include <condition_variable>
#include <future>
#include <mutex>

#include "tests/support/catch.h"
#include "tests/writers/sample_records.h"
#include "writers/queue/writer_thread.h"

using namespace gradmon;
using namespace std::chrono_literals;

namespace {

// Ready when it is told so. The value is ten times the index; the row with index 1 has none.
class FakeLateValues : public LateValues {
 public:
  ~FakeLateValues() override { gone_.set_value(); }

  bool ready() noexcept override {
    const std::lock_guard lock(mutex_);
    ++asked_;
    changed_.notify_all();
    return ready_;
  }
  bool complete(Record& record) noexcept override {
    if (record.values[0] == 1) return false;
    record.mask = static_cast<ValueMask>(record.mask & ~kLate);
    record.values[static_cast<std::size_t>(Op::norm)] = 10 * record.values[0];
    return true;
  }

  void set_ready() {
    const std::lock_guard lock(mutex_);
    ready_ = true;
  }
  int asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  // False: nobody has asked so often within a minute.
  bool wait_until_asked(int times) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 60s, [&] { return asked_ >= times; });
  }
  // Ready once the values are destroyed.
  std::future<void> gone() { return gone_.get_future(); }

 private:
  std::promise<void> gone_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool ready_ = false;
  int asked_ = 0;
};

class KeptRows : public Sink {
 public:
  explicit KeptRows(std::shared_ptr<std::vector<Record>> rows) : rows_(std::move(rows)) {}
  const char* name() const override { return "kept"; }
  tl::expected<void, SinkError> begin_revision(const Layout&) override { return {}; }
  tl::expected<void, SinkError> write_step(Step, const RecordBatch& records) override {
    rows_->insert(rows_->end(), records.begin(), records.end());
    return {};
  }
  tl::expected<void, SinkError> flush() override { return {}; }

 private:
  const std::shared_ptr<std::vector<Record>> rows_;
};

// A writer thread and what it has written, to be read once it has stopped.
struct LateWriting {
  const std::shared_ptr<std::vector<Record>> written = std::make_shared<std::vector<Record>>();
  std::shared_ptr<FakeLateValues> late = std::make_shared<FakeLateValues>();
  const std::shared_ptr<RecordQueue> queue =
      std::make_shared<RecordQueue>(QueueOptions{1024, Overflow::block, 60s});
  WriterThread writer{queue, [](Revision, Step) {}};

  LateWriting() {
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::make_unique<KeptRows>(written));
    Layout layout;
    layout.revision = Revision{1};
    writer.begin_revision(layout, std::move(sinks));
  }

  void push(std::int64_t step, std::uint64_t sequence, int index) {
    Record record = plain_record(step, sequence);
    if (index >= 0) {
      record.mask |= kLate;
      record.values[0] = index;
    }
    queue->push(record);
  }
};

}  // namespace

TEST_CASE("the writer thread waits for late values and nobody else does") {
  LateWriting writing;
  writing.queue->begin_step();
  writing.push(1, 0, 0);
  writing.push(1, 1, -1);
  writing.push(1, 2, 1);
  writing.push(1, 3, 2);
  writing.queue->set_late_values(writing.late);
  CHECK(writing.queue->end_step(Revision{1}, Step{1}).rows == 4);
  writing.queue->begin_step();
  writing.push(2, 0, -1);
  CHECK(writing.queue->end_step(Revision{1}, Step{2}).rows == 1);
  REQUIRE(writing.late->wait_until_asked(3));
  CHECK(writing.writer.status().written == 0);
  writing.late->set_ready();
  REQUIRE(writing.writer.stop(60s));
  const std::vector<Record>& rows = *writing.written;
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].values[static_cast<std::size_t>(Op::norm)] == 0);
  CHECK(rows[1].sequence == 1);
  CHECK(rows[2].sequence == 3);
  CHECK(rows[2].values[static_cast<std::size_t>(Op::norm)] == 20);
  CHECK(rows[3].step == 2);
  for (const Record& row : rows) CHECK((row.mask & kLate) == 0);
  CHECK(writing.writer.status().lost == 0);
}

TEST_CASE("a step may be longer than the queue while the writer thread waits for late values") {
  LateWriting writing;  // of 1,024 places
  writing.queue->begin_step();
  writing.push(1, 0, 0);
  writing.queue->set_late_values(writing.late);
  writing.queue->end_step(Revision{1}, Step{1});
  REQUIRE(writing.late->wait_until_asked(1));
  writing.queue->begin_step();
  for (std::uint64_t i = 0; i < 5000; ++i) writing.push(2, i, -1);
  CHECK(writing.queue->end_step(Revision{1}, Step{2}).rows == 5000);
  CHECK(writing.queue->dropped() == 0);
  CHECK(writing.writer.status().last_error.empty());
  writing.late->set_ready();
  REQUIRE(writing.writer.stop(60s));
  CHECK(writing.written->size() == 5001);
}

TEST_CASE("late values of a step that does not count are not waited for") {
  LateWriting writing;
  writing.queue->begin_step();
  writing.push(1, 0, 0);
  writing.queue->set_late_values(writing.late);
  writing.queue->drop_step(Revision{1}, Step{1});
  REQUIRE(writing.writer.stop(60s));
  CHECK(writing.late->asked() == 0);
  CHECK(writing.written->empty());
}

TEST_CASE("a writer thread that waits for late values in vain gives up when it is abandoned") {
  LateWriting writing;
  writing.queue->begin_step();
  writing.push(1, 0, 0);
  writing.push(1, 1, -1);
  writing.queue->set_late_values(writing.late);
  writing.queue->end_step(Revision{1}, Step{1});
  REQUIRE(writing.late->wait_until_asked(1));
  WriterThread::StopTimeout timeout;
  timeout.stalled = timeout.in_all = 50ms;
  CHECK_FALSE(writing.writer.stop(timeout));
  CHECK(writing.writer.abandoned_output().all_rows() == 2);
  // The thread ends by itself: it lets go of the values.
  const auto gone = writing.late->gone();
  writing.late.reset();
  CHECK(gone.wait_for(60s) == std::future_status::ready);
  CHECK(writing.written->empty());
}
