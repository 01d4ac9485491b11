// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/record_queue.h"

#include <map>
#include <thread>

#include "control/debian_version.h"
#include "tests/writers/sample_records.h"
#include "writers/queue/marker.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kNoLimit = 1U << 30;

QueueOptions options(std::size_t capacity, Overflow overflow, std::chrono::milliseconds max_wait = 60s) {
  return {capacity, overflow, max_wait};
}

std::size_t push_many(RecordQueue& queue, std::size_t n) {
  std::size_t accepted = 0;
  for (std::size_t i = 0; i < n; ++i) accepted += queue.push(plain_record(0, i)) ? 1 : 0;
  return accepted;
}

std::size_t take_all(RecordQueue& queue) {
  std::vector<Record> records;
  return queue.take(records, kNoLimit);
}

// The target of each record is the producer's number; the sequence counts from 0.
void produce(RecordQueue& queue, std::uint32_t producer, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) {
    Record record = plain_record(0, i);
    record.target = producer;
    queue.push(record);
  }
}

struct Received {
  std::uint64_t count = 0;
  bool in_order = true;
};

// Takes records until `done` returns true, and then once more.
template <typename Done>
Received receive(RecordQueue& queue, Done done) {
  Received received;
  std::map<std::uint32_t, std::uint64_t> next;
  std::vector<Record> records;
  for (bool last = false; !last;) {
    last = done();
    records.clear();
    queue.take(records, kNoLimit);
    for (const Record& record : records) {
      received.in_order = received.in_order && record.sequence >= next[record.target];
      next[record.target] = record.sequence + 1;
    }
    received.count += records.size();
  }
  return received;
}

Received produce_and_receive(RecordQueue& queue, std::uint64_t each) {
  std::atomic<int> running{4};
  std::vector<std::thread> threads;
  for (std::uint32_t producer = 0; producer < 4; ++producer) {
    threads.emplace_back([&, producer] {
      produce(queue, producer, each);
      running.fetch_sub(1);
    });
  }
  const Received received = receive(queue, [&] { return running.load() == 0; });
  for (auto& thread : threads) thread.join();
  return received;
}

}  // namespace

TEST_CASE("a queue that drops holds its capacity and counts the dropped records") {
  RecordQueue queue(options(64, Overflow::drop));
  CHECK(push_many(queue, 100) == 64);
  CHECK(queue.accepted() == 64);
  CHECK(queue.dropped() == 36);
  CHECK(take_all(queue) == 64);
  CHECK(push_many(queue, 64) == 64);
}

TEST_CASE("all places are free for a thread after another thread's records were taken") {
  RecordQueue queue(options(64, Overflow::drop));
  CHECK(push_many(queue, 64) == 64);
  CHECK(take_all(queue) == 64);
  std::size_t accepted = 0;
  std::thread([&] { accepted = push_many(queue, 65); }).join();
  CHECK(accepted == 64);
}

TEST_CASE("with several producers every dropped record is counted") {
  constexpr std::uint64_t kEach = 50000;
  RecordQueue queue(options(256, Overflow::drop));
  const Received received = produce_and_receive(queue, kEach);
  CHECK(queue.accepted() + queue.dropped() == 4 * kEach);
  CHECK(received.count == queue.accepted());
  CHECK(received.in_order);
}

TEST_CASE("with several producers that wait for free places nothing is lost") {
  constexpr std::uint64_t kEach = 50000;
  RecordQueue queue(options(256, Overflow::block));
  const Received received = produce_and_receive(queue, kEach);
  CHECK(queue.dropped() == 0);
  CHECK(received.count == 4 * kEach);
  CHECK(received.in_order);
}

TEST_CASE("a queue of capacity 1 loses nothing if producers wait") {
  RecordQueue queue(options(1, Overflow::block));
  const Received received = produce_and_receive(queue, 200);
  CHECK(received.count == 800);
}

TEST_CASE("when max_wait is over the queue drops until it is half empty") {
  RecordQueue queue(options(64, Overflow::block, 10ms));
  CHECK(push_many(queue, 66) == 64);
  CHECK(queue.dropping());
  std::vector<Record> records;
  queue.take(records, 31);
  CHECK(push_many(queue, 1) == 0);
  queue.take(records, 1);
  CHECK(push_many(queue, 1) == 1);
  CHECK_FALSE(queue.dropping());
  CHECK(queue.accepted() == 65);
  CHECK(queue.dropped() == 3);
}

TEST_CASE("the time waited in a step does not count in the next") {
  RecordQueue queue(options(2, Overflow::block, 20ms));
  CHECK(push_many(queue, 3) == 2);
  CHECK(queue.dropping());
  take_all(queue);
  queue.end_step(Revision{1}, Step{1});
  queue.begin_step();
  CHECK(push_many(queue, 2) == 2);
  const auto before = std::chrono::steady_clock::now();
  CHECK(push_many(queue, 1) == 0);
  CHECK(std::chrono::steady_clock::now() - before >= 20ms);
}

TEST_CASE("a queue that fills up again in the same step drops again") {
  RecordQueue queue(options(2, Overflow::block, 20ms));
  CHECK(push_many(queue, 3) == 2);
  take_all(queue);
  CHECK(push_many(queue, 2) == 2);
  CHECK_FALSE(queue.dropping());
  CHECK(push_many(queue, 1) == 0);
  CHECK(queue.dropping());
}

TEST_CASE("an abandoned queue releases waiting threads and drops records at once") {
  RecordQueue queue(options(2, Overflow::block, 600s));
  CHECK(push_many(queue, 2) == 2);
  bool accepted = true;
  std::thread waiting([&] { accepted = queue.push(plain_record(0, 0)); });
  while (queue.waiting() == 0) std::this_thread::yield();
  queue.abandon();
  waiting.join();
  CHECK_FALSE(accepted);
  CHECK(take_all(queue) == 2);
  CHECK(push_many(queue, 1) == 0);
  CHECK(queue.dropped() == 2);
}

TEST_CASE("the overflow policy can be changed while the queue is in use") {
  RecordQueue queue(options(1, Overflow::block, 600s));
  CHECK(push_many(queue, 1) == 1);
  queue.set_overflow(Overflow::drop);
  CHECK(push_many(queue, 1) == 0);
}

TEST_CASE("the marker of a step's end has the step's record count and takes no place") {
  RecordQueue queue(options(4, Overflow::drop));
  push_many(queue, 5);
  queue.end_step(Revision{3}, Step{8});
  std::thread([&] { take_all(queue), push_many(queue, 2); }).join();
  queue.end_step(Revision{3}, Step{9});
  queue.end_collection(Revision{3}, Step{9});
  std::vector<Marker> markers;
  queue.wait(RecordQueue::WakeFor::markers);
  queue.take_markers(markers);
  REQUIRE(markers.size() == 3);
  CHECK(std::get<StepEnded>(markers[0].message).records == 4);
  CHECK(std::get<StepEnded>(markers[0].message).step == Step{8});
  CHECK(std::get<StepEnded>(markers[1].message).records == 2);
  CHECK(std::get<CollectionEnded>(markers[2].message).last == Step{9});
}

TEST_CASE("a step without an accepted record sends no marker") {
  RecordQueue queue(options(4, Overflow::drop));
  queue.end_step(Revision{3}, Step{8});
  std::vector<Marker> markers;
  queue.take_markers(markers);
  CHECK(markers.empty());
}

TEST_CASE("a half full queue wakes the writer") {
  RecordQueue queue(options(64, Overflow::drop));
  std::size_t taken = 0;
  std::thread writer([&] {
    queue.wait(RecordQueue::WakeFor::markers_or_half_full);
    taken = take_all(queue);
  });
  push_many(queue, 32);
  writer.join();
  CHECK(taken == 32);
}
