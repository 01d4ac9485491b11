// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/producer_lanes.h"

#include <thread>
#include <vector>

#include "control/debian_version.h"
#include "tests/writers/sample_records.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

namespace {

std::vector<Record> take_all(ProducerLanes& lanes) {
  std::vector<Record> records(1000);
  records.resize(lanes.take(records.data(), records.size()));
  return records;
}

}  // namespace

TEST_CASE("records of one thread are taken in the order they were put") {
  ProducerLanes lanes;
  for (std::uint64_t i = 0; i < 600; ++i) REQUIRE(lanes.put(plain_record(0, i)));
  const auto records = take_all(lanes);
  REQUIRE(records.size() == 600);
  bool ordered = true;
  for (std::uint64_t i = 0; i < 600; ++i) ordered = ordered && records[i].sequence == i;
  CHECK(ordered);
  CHECK(take_all(lanes).empty());
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
