// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/histogram_lane.h"

#include <thread>

#include "control/debian_version.h"
#include "tests/writers/sample_records.h"
#include "writers/queue/marker.h"
#include "writers/queue/record_queue.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

namespace {

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

}  // namespace

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
