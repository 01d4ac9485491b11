// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/record_queue.h"

#include <string>
#include <thread>

#include "tests/support/catch.h"
#include "tests/writers/sample_records.h"

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

std::vector<Record> take_all(ProducerLanes& lanes) {
  std::vector<Record> records(1000);
  records.resize(lanes.take(records.data(), records.size()));
  return records;
}

std::size_t push_many(HistogramLane& lane, std::uint32_t n) {
  std::size_t accepted = 0;
  for (std::uint32_t target = 0; target < n; ++target)
    accepted += lane.push(plain_histogram(1, target)) ? 1 : 0;
  return accepted;
}

std::vector<std::uint32_t> targets_of(const std::vector<Histogram>& histograms) {
  std::vector<std::uint32_t> targets;
  for (const Histogram& histogram : histograms) targets.push_back(histogram.target);
  return targets;
}

using Targets = std::vector<std::uint32_t>;

Record record(std::uint64_t revision, std::int64_t step, Kind kind, std::uint64_t sequence) {
  Record made;
  made.revision = revision;
  made.step = step;
  made.kind = kind;
  made.sequence = sequence;
  return made;
}

std::string order(const std::vector<Record>& records) {
  std::string text;
  for (const Record& r : records) text += std::string(name_of(r.kind)) + std::to_string(r.sequence) + " ";
  return text;
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
  for (const auto& [capacity, each] : {std::pair<std::size_t, std::uint64_t>{256, 50000}, {1, 200}}) {
    CAPTURE(capacity);
    RecordQueue queue(options(capacity, Overflow::block));
    const Received received = produce_and_receive(queue, each);
    CHECK(queue.dropped() == 0);
    CHECK(received.count == 4 * each);
    CHECK(received.in_order);
  }
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

TEST_CASE("a lane is reused by the next thread when its thread has ended") {
  ProducerLanes lanes;
  for (int i = 0; i < 100; ++i) {
    std::thread([&] { lanes.put(plain_record(0, 0)); }).join();
  }
  CHECK(take_all(lanes).size() == 100);
  CHECK(lanes.count() == 1);
}

TEST_CASE("a thread may outlive lanes that it has put records into") {
  auto first = std::make_unique<ProducerLanes>();
  ProducerLanes second;
  first->put(plain_record(0, 0));
  second.put(plain_record(0, 0));
  first.reset();
  ProducerLanes third;
  third.put(plain_record(0, 0));
  second.put(plain_record(0, 1));
  CHECK(take_all(second).size() == 2);
  CHECK(take_all(third).size() == 1);
}

TEST_CASE("a full lane drops and counts and keeps the order of the rest") {
  HistogramLane lane(3);
  CHECK(push_many(lane, 5) == 3);
  CHECK(lane.dropped() == 2);
  CHECK(lane.waiting() == 3);
  CHECK(targets_of(lane.take_step()) == Targets{0, 1, 2});
}

TEST_CASE("histograms keep their places until they are released") {
  HistogramLane lane(4);
  push_many(lane, 3);
  CHECK(lane.take_step().size() == 3);
  CHECK(push_many(lane, 2) == 1);
  lane.release(3);
  CHECK(push_many(lane, 3) == 3);
  CHECK(lane.dropped() == 1);
  CHECK(targets_of(lane.take_step()) == Targets{0, 0, 1, 2});
}

TEST_CASE("the memory of a step is used again for a later step") {
  HistogramLane lane(100);
  push_many(lane, 100);
  std::vector<Histogram> first = lane.take_step();
  const Histogram* const memory = first.data();
  lane.release(first.size());
  lane.recycle(std::move(first));
  push_many(lane, 1);
  (void)lane.take_step();  // the second step began before the memory came back
  push_many(lane, 100);
  CHECK(lane.take_step().data() == memory);
}

TEST_CASE("an abandoned lane drops everything and keeps what it has") {
  HistogramLane lane(4);
  push_many(lane, 2);
  lane.abandon();
  CHECK(push_many(lane, 2) == 0);
  CHECK(lane.dropped() == 2);
  CHECK(lane.take_step().size() == 2);
}

TEST_CASE("every histogram is taken or counted as dropped while another thread frees places") {
  constexpr std::uint32_t kSteps = 2000;
  HistogramLane lane(8);
  std::vector<std::vector<Histogram>> steps;
  std::mutex mutex;
  std::atomic<bool> done{false};
  std::uint64_t taken = 0;
  std::thread writer([&] {
    for (bool last = false; !last;) {
      last = done.load();
      std::vector<std::vector<Histogram>> mine;
      {
        const std::lock_guard lock(mutex);
        mine.swap(steps);
      }
      for (auto& step : mine) {
        taken += step.size();
        lane.release(step.size());
        lane.recycle(std::move(step));
      }
    }
  });
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    push_many(lane, 3);
    const std::lock_guard lock(mutex);
    steps.push_back(lane.take_step());
  }
  done.store(true);
  writer.join();
  CHECK(taken + lane.dropped() == 3 * kSteps);
  CHECK(lane.waiting() == 0);
}

TEST_CASE("the marker of a step's end has the step's histograms and is sent for them alone") {
  RecordQueue queue({4, Overflow::drop, std::chrono::milliseconds(0)});
  queue.histograms().push(plain_histogram(8, 5));
  CHECK(queue.end_step(Revision{3}, Step{8}) == 0);
  queue.push(plain_record(9, 0));
  queue.histograms().push(plain_histogram(9, 6));
  queue.histograms().push(plain_histogram(9, 7));
  queue.drop_step(Revision{3}, Step{9});
  std::vector<Marker> markers;
  queue.take_markers(markers);
  REQUIRE(markers.size() == 2);
  CHECK(targets_of(std::get<StepEnded>(markers[0].message).histograms) == Targets{5});
  CHECK(std::get<StepEnded>(markers[0].message).records == 0);
  CHECK(targets_of(std::get<StepEnded>(markers[1].message).histograms) == Targets{6, 7});
  CHECK_FALSE(std::get<StepEnded>(markers[1].message).valid);
  queue.abandon();
  CHECK_FALSE(queue.histograms().push(plain_histogram(10, 0)));
}

TEST_CASE("a closed step is sorted by kind and then sequence") {
  StepBuffer steps;
  steps.add({record(1, 5, Kind::param_origin, 1), record(1, 5, Kind::grad_reduced, 9)});
  steps.add({record(1, 5, Kind::param_origin, 0), record(1, 5, Kind::grad_reduced, 2)});
  CHECK(steps.count(Revision{1}, Step{5}) == 4);
  CHECK(order(steps.close(Revision{1}, Step{5})) ==
        "grad_reduced2 grad_reduced9 param_origin0 param_origin1 ");
  CHECK(steps.held() == 0);
  CHECK(steps.lost() == 0);
}

TEST_CASE("records of the next step are kept until its own end") {
  StepBuffer steps;
  steps.add({record(1, 6, Kind::actv, 0), record(1, 5, Kind::actv, 0), record(2, 7, Kind::actv, 3)});
  CHECK(order(steps.close(Revision{1}, Step{5})) == "actv0 ");
  CHECK(steps.held() == 2);
  CHECK(order(steps.close(Revision{1}, Step{6})) == "actv0 ");
  CHECK(order(steps.close(Revision{2}, Step{7})) == "actv3 ");
}

TEST_CASE("a record that arrives after its step was closed is counted as lost") {
  StepBuffer steps;
  steps.add({record(1, 5, Kind::actv, 0)});
  steps.close(Revision{1}, Step{5});
  steps.add({record(1, 5, Kind::actv, 1), record(1, 4, Kind::actv, 0)});
  CHECK(steps.lost() == 2);
  CHECK(steps.held() == 0);
}

TEST_CASE("a step that never ended is lost when a later one ends") {
  StepBuffer steps;
  steps.add({record(1, 5, Kind::actv, 0), record(1, 5, Kind::actv, 1), record(2, 6, Kind::actv, 0)});
  CHECK(order(steps.close(Revision{2}, Step{6})) == "actv0 ");
  CHECK(steps.lost() == 2);
  CHECK(steps.held() == 0);
}

TEST_CASE("clearing counts the held records as lost") {
  StepBuffer steps;
  steps.add({record(1, 5, Kind::actv, 0)});
  steps.clear();
  CHECK(steps.lost() == 1);
  CHECK(steps.held() == 0);
}
