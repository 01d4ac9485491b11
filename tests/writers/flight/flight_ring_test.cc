// SPDX-License-Identifier: Apache-2.0
#include "writers/flight/flight_ring.h"

#include <random>

#include "control/debian_version.h"
#include "tests/writers/sample_records.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

namespace {

Record gradient(std::int64_t step, std::uint64_t sequence, double norm, double nans = 0) {
  Record record = plain_record(step, sequence);
  record.values[static_cast<std::size_t>(Op::norm)] = norm;
  record.values[static_cast<std::size_t>(Op::nans)] = nans;
  return record;
}

Record scalar(std::int64_t step, std::uint64_t sequence, double value) {
  Record record = plain_record(step, sequence);
  record.kind = Kind::scalar;
  record.mask = bit_of(Column::value);
  record.values[static_cast<std::size_t>(Column::value)] = value;
  return record;
}

double norm_of(const Record& record) { return record.values[static_cast<std::size_t>(Op::norm)]; }

// Takes all due rows out of the ring: step and number of rows.
std::vector<std::pair<std::int64_t, std::size_t>> take_due(FlightRing& ring) {
  std::vector<std::pair<std::int64_t, std::size_t>> taken;
  while (ring.has_due()) {
    taken.emplace_back(ring.oldest().value, ring.oldest_rows().size());
    ring.remove_oldest_rows();
  }
  return taken;
}

}  // namespace

TEST_CASE("the ring keeps the last steps and no more") {
  FlightRing ring;
  ring.keep_at_most(3);
  for (std::int64_t step = 0; step < 10; ++step) ring.add(Step{step}, {gradient(step, 0, 1.5)});
  CHECK(ring.steps() == 3);
  CHECK(ring.rows() == 3);
  CHECK(ring.oldest() == Step{7});
  CHECK(ring.lost() == 0);
  ring.mark_all_due();
  ring.add(Step{10}, {gradient(10, 0, 1.5)});
  CHECK(ring.newest_due() == Step{9});
  ring.keep_at_most(1);
  CHECK(ring.oldest() == Step{10});
  ring.keep_at_most(0);
  ring.add(Step{11}, {gradient(11, 0, 1)});
  CHECK((ring.steps() == 0 && ring.rows() == 0));
}

TEST_CASE("a row keeps what it is of, and norm and nans, also where its mask names other statistics") {
  FlightRing ring;
  ring.keep_at_most(2);
  Record row = sample_record(Kind::grad_reduced, 4, 7, 9, {-2, 3, 0.5, 6, 1, 0.25, 3});
  row.mask = bit_of(Op::mean);
  row.sequence = 5;
  ring.add(Step{4}, {row});
  const std::vector<Record> kept = ring.oldest_rows();
  REQUIRE(kept.size() == 1);
  CHECK((kept[0].step == 4 && kept[0].target == 7 && kept[0].shape == 9 && kept[0].sequence == 5));
  CHECK((kept[0].dtype == DType::float32 && kept[0].kind == Kind::grad_reduced));
  CHECK(kept[0].mask == (bit_of(Op::norm) | bit_of(Op::nans)));
  CHECK(norm_of(kept[0]) == 6);
  CHECK(kept[0].values[static_cast<std::size_t>(Op::nans)] == 1);
}

TEST_CASE("the two parts of a step are one step, gradients first, and other kinds are left out") {
  FlightRing ring;
  ring.keep_at_most(2);
  Record weight = gradient(4, 0, 1);
  weight.kind = Kind::param_origin;
  ring.add(Step{4}, {scalar(4, 0, 2.5)});
  ring.add(Step{4}, {gradient(4, 1, 11), gradient(4, 0, 10), weight});
  ring.add(Step{5}, {weight});
  CHECK(ring.steps() == 1);
  CHECK(ring.rows() == 3);
  const std::vector<Record> gradients = ring.oldest_rows();
  REQUIRE(gradients.size() == 2);
  CHECK((norm_of(gradients[0]) == 10 && norm_of(gradients[1]) == 11));
  ring.remove_oldest_rows();
  const std::vector<Record> scalars = ring.oldest_rows();
  REQUIRE(scalars.size() == 1);
  CHECK(scalars[0].mask == bit_of(Column::value));
  CHECK(scalars[0].values[static_cast<std::size_t>(Column::value)] == 2.5);
  ring.remove_oldest_rows();
  CHECK((ring.steps() == 0 && ring.rows() == 0));
}

TEST_CASE("only due steps that make room count as lost") {
  FlightRing ring;
  ring.keep_at_most(2);
  ring.add(Step{0}, {gradient(0, 0, 1)});
  ring.add(Step{1}, {gradient(1, 0, 1), gradient(1, 1, 1)});
  ring.mark_all_due();
  ring.add(Step{2}, {gradient(2, 0, 1)});
  ring.add(Step{3}, {gradient(3, 0, 1)});
  ring.add(Step{4}, {gradient(4, 0, 1)});
  CHECK(ring.lost() == 3);
  CHECK_FALSE(ring.has_due());
}

TEST_CASE("too many rows make room for the newest step, however large it is") {
  FlightRing ring(4);
  ring.keep_at_most(100);
  for (std::int64_t step = 0; step < 3; ++step)
    ring.add(Step{step}, {gradient(step, 0, 1), gradient(step, 1, 1)});
  CHECK(ring.oldest() == Step{1});
  ring.add(Step{3}, std::vector<Record>(9, gradient(3, 0, 1)));
  CHECK((ring.steps() == 1 && ring.rows() == 9));
}

TEST_CASE("whatever comes, the ring is what a plain list of steps would be") {
  std::mt19937 random(11);
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  for (int round = 0; round < 200; ++round) {
    FlightRing ring(64);
    const int keep = 1 + draw(6);
    ring.keep_at_most(keep);
    std::deque<std::pair<std::int64_t, std::size_t>> expected;  // step and rows
    std::size_t due = 0;
    for (std::int64_t step = 0; step < 60; ++step) {
      const auto rows = static_cast<std::size_t>(draw(5));
      ring.add(Step{step}, std::vector<Record>(rows, gradient(step, 0, 1)));
      if (rows > 0) expected.emplace_back(step, rows);
      while (expected.size() > static_cast<std::size_t>(keep)) {
        expected.pop_front();
        due -= std::min<std::size_t>(due, 1);
      }
      if (draw(10) == 0) {
        ring.mark_all_due();
        due = expected.size();
      }
      if (draw(6) != 0) continue;
      const auto taken = take_due(ring);
      const auto end = expected.begin() + static_cast<std::ptrdiff_t>(due);
      REQUIRE(taken == std::vector<std::pair<std::int64_t, std::size_t>>(expected.begin(), end));
      expected.erase(expected.begin(), end);
      due = 0;
      REQUIRE(ring.steps() == expected.size());
    }
  }
}
