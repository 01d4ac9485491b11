// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/record_queue.h"

#include <string>
#include <thread>

#include "tests/support/catch.h"
#include "tests/writers/sample_records.h"

using namespace gradmon;
using namespace std::chrono_literals;

namespace {

QueueOptions options(std::size_t capacity, Overflow overflow, std::chrono::milliseconds max_wait = 60s) {
  return {capacity, overflow, max_wait};
}

// Returns the number of records that were admitted: all or none.
std::uint64_t end_step(RecordQueue& queue, std::int64_t step, std::size_t records) {
  queue.begin_step();
  for (std::size_t i = 0; i < records; ++i) queue.push(plain_record(step, i));
  return queue.end_step(Revision{1}, Step{step}).rows;
}

// Takes the next message, a batch, and frees its room.
StepEnded take(RecordQueue& queue) {
  StepEnded batch = std::get<StepEnded>(queue.wait().message);
  queue.release(batch);
  return batch;
}

std::uint64_t rows_in(const RecordQueue& queue) {
  std::uint64_t all = 0;
  for (const std::uint64_t rows : queue.rows()) all += rows;
  return all;
}

}  // namespace

TEST_CASE("a step's batch arrives whole and in the order of its pushes") {
  RecordQueue queue(options(64, Overflow::drop));
  queue.begin_step();
  queue.push(plain_record(8, 5));
  queue.push(plain_record(8, 2));
  queue.push(plain_histogram(8, 6));
  queue.push(plain_histogram(8, 1));
  CHECK(queue.end_step(Revision{3}, Step{8}).rows == 2);
  queue.end_collection(Revision{3}, Step{8});
  const StepEnded batch = take(queue);
  CHECK(batch.revision == Revision{3});
  CHECK(batch.step == Step{8});
  CHECK(batch.valid);
  REQUIRE((batch.records.size() == 2 && batch.histograms.size() == 2));
  CHECK((batch.records[0].sequence == 5 && batch.records[1].sequence == 2));
  CHECK((batch.histograms[0].target == 6 && batch.histograms[1].target == 1));
  CHECK(std::get<CollectionEnded>(queue.wait().message).last == Step{8});
}

TEST_CASE("histograms alone are a batch, and a step without rows is none") {
  RecordQueue queue(options(4, Overflow::drop));
  CHECK(end_step(queue, 7, 0) == 0);
  queue.begin_step();
  queue.push(plain_histogram(8, 5));
  CHECK(queue.end_step(Revision{1}, Step{8}).rows == 0);
  CHECK(take(queue).step == Step{8});
  Marker none;
  CHECK_FALSE(queue.try_take(none));
}

TEST_CASE("a queue that drops admits whole batches up to its capacity and counts the dropped rows") {
  RecordQueue queue(options(64, Overflow::drop));
  CHECK(end_step(queue, 1, 40) == 40);
  CHECK(end_step(queue, 2, 25) == 0);
  CHECK(end_step(queue, 3, 24) == 24);
  CHECK(queue.dropped() == 25);
  CHECK(rows_in(queue) == 64);
  take(queue);
  CHECK(end_step(queue, 4, 40) == 40);
}

TEST_CASE("a batch larger than the queue is admitted alone") {
  RecordQueue queue(options(4, Overflow::drop));
  CHECK(end_step(queue, 1, 100) == 100);
  CHECK(end_step(queue, 2, 1) == 0);
  take(queue);
  CHECK(end_step(queue, 3, 1) == 1);
  CHECK(end_step(queue, 4, 100) == 0);
}

TEST_CASE(
    "a record goes to its readers, and rows for no sink do not wait for room nor count as dropped rows") {
  RecordQueue queue(options(3, Overflow::block));
  const auto push = [&](Readers readers) {
    Record record = plain_record(1, readers);
    record.readers = readers;
    queue.push(record);
  };
  push(kForRows | kForWholeNorm);
  push(kForWholeNorm);
  push(kForFlight | kForReplicas);
  CHECK(queue.end_step(Revision{1}, Step{1}).rows == 1);
  push(kForFlight);
  const RecordQueue::Ended second = queue.end_step(Revision{1}, Step{2});
  CHECK((second.rows == 0 && second.flight_lost == 1 && second.replicas_lost == 0));
  CHECK(queue.dropped() == 0);
  CHECK(rows_in(queue) == 1);
  const StepEnded batch = take(queue);
  CHECK((batch.records.size() == 1 && batch.flight.size() == 1 && batch.replicas.size() == 1));
  CHECK(batch.count() == 3);
}

TEST_CASE("a batch without room waits until the writer has taken another") {
  RecordQueue queue(options(4, Overflow::block));
  CHECK(end_step(queue, 1, 4) == 4);
  std::thread writer([&] {
    while (!queue.waiting()) std::this_thread::yield();
    take(queue);
  });
  CHECK(end_step(queue, 2, 2) == 2);
  writer.join();
  CHECK(queue.dropped() == 0);
}

TEST_CASE("when max_wait is over the queue drops until it is half empty, and then waits again") {
  RecordQueue queue(options(64, Overflow::block, 20ms));
  for (const std::size_t rows : {20U, 20U, 24U}) CHECK(end_step(queue, 1, rows) == rows);
  CHECK(end_step(queue, 2, 1) == 0);
  CHECK(queue.dropping());
  take(queue);  // 44 rows are left
  CHECK(end_step(queue, 3, 1) == 0);
  take(queue);
  CHECK(end_step(queue, 4, 1) == 1);
  CHECK_FALSE(queue.dropping());
  const auto before = std::chrono::steady_clock::now();
  CHECK(end_step(queue, 5, 64) == 0);
  CHECK(std::chrono::steady_clock::now() - before >= 20ms);
  CHECK(queue.dropped() == 66);
}

TEST_CASE("an abandoned queue releases a waiting batch, drops further ones and keeps those that it has") {
  RecordQueue queue(options(2, Overflow::block, 600s));
  CHECK(end_step(queue, 1, 2) == 2);
  std::uint64_t admitted = 1;
  std::thread waiting([&] { admitted = end_step(queue, 2, 1); });
  while (!queue.waiting()) std::this_thread::yield();
  queue.abandon();
  waiting.join();
  CHECK(admitted == 0);
  CHECK(take(queue).records.size() == 2);
  CHECK(end_step(queue, 3, 1) == 0);
  CHECK(queue.dropped() == 2);
}

TEST_CASE("the overflow policy can be changed while the queue is in use") {
  RecordQueue queue(options(1, Overflow::block, 600s));
  CHECK(end_step(queue, 1, 1) == 1);
  queue.set_overflow(Overflow::drop);
  CHECK(end_step(queue, 2, 1) == 0);
}

TEST_CASE(
    "the rows of a step that does not count arrive as such, and those of one that never ends are dropped") {
  RecordQueue queue(options(4, Overflow::drop));
  queue.push(plain_record(9, 0));
  queue.drop_step(Revision{3}, Step{9});
  CHECK_FALSE(take(queue).valid);
  queue.push(plain_record(10, 0));
  CHECK(end_step(queue, 11, 1) == 1);
  CHECK(queue.dropped() == 1);
  CHECK(take(queue).records.size() == 1);
}

TEST_CASE("the memory of a batch is used again for a later step") {
  RecordQueue queue(options(1000, Overflow::drop));
  end_step(queue, 1, 100);
  StepEnded first = take(queue);
  const std::size_t room = first.records.room();
  queue.recycle(std::move(first));
  end_step(queue, 2, 1);  // takes the memory for the next step
  end_step(queue, 3, 100);
  take(queue);
  CHECK(take(queue).records.room() == room);
}

TEST_CASE("all threads together post in one order") {
  RecordQueue queue(options(1, Overflow::drop));
  for (int i = 0; i < 100; ++i) {
    std::thread([&, i] { queue.post(Marker{CollectionEnded{Revision{1}, Step{i}}}); }).join();
  }
  for (int i = 0; i < 100; ++i) CHECK(std::get<CollectionEnded>(queue.wait().message).last == Step{i});
}

TEST_CASE("every row is taken or counted as dropped while another thread takes batches") {
  constexpr std::uint64_t kSteps = 2000;
  RecordQueue queue(options(8, Overflow::drop));
  std::uint64_t taken = 0;
  std::thread writer([&] {
    for (Marker marker = queue.wait(); !std::holds_alternative<WriterStopped>(marker.message);
         marker = queue.wait()) {
      auto& batch = std::get<StepEnded>(marker.message);
      taken += batch.count();
      queue.release(batch);
      queue.recycle(std::move(batch));
    }
  });
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    queue.push(plain_histogram(static_cast<std::int64_t>(step), 0));
    queue.push(plain_record(static_cast<std::int64_t>(step), 0));
    queue.push(plain_record(static_cast<std::int64_t>(step), 1));
    queue.end_step(Revision{1}, Step{static_cast<std::int64_t>(step)});
  }
  queue.post(Marker{WriterStopped{}});
  writer.join();
  CHECK(taken + queue.dropped() == 3 * kSteps);
  CHECK(rows_in(queue) == 0);
}
