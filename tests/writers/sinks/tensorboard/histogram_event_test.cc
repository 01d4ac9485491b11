// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard/histogram_event.h"

#include <cmath>

#include "control/debian_version.h"
#include "tests/writers/sinks/tensorboard/event_reader.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

namespace {

tensorboard::Event histogram_of(const BinCounts& counts) {
  return parse_events(histogram_record("0:w/rank2/update", counts, Step{7}, 1.5)).events.at(0);
}

bool is_near(double a, double b) { return std::fabs(a - b) < 1e-12; }

}  // namespace

TEST_CASE("a histogram has thirty buckets over [-1, 1] and ends at the outermost bins with values") {
  BinCounts counts{};
  counts[0] = 0;
  counts[15] = 6;  // [0, 1/15)
  counts[20] = 3;  // [1/3, 6/15)
  const tensorboard::Event event = histogram_of(counts);
  CHECK(event.step() == 7);
  CHECK(event.wall_time() == 1.5);
  CHECK(event.summary().value(0).tag() == "0:w/rank2/update");
  const auto& histogram = event.summary().value(0).histo();
  REQUIRE(histogram.bucket_size() == 30);
  REQUIRE(histogram.bucket_limit_size() == 30);
  CHECK(histogram.bucket(15) == 6);
  CHECK(histogram.bucket(20) == 3);
  CHECK(is_near(histogram.bucket_limit(0), -1 + 1.0 / 15));
  CHECK(histogram.bucket_limit(14) == 0);
  CHECK(histogram.bucket_limit(29) == 1);
  CHECK(histogram.min() == 0);
  CHECK(is_near(histogram.max(), 0.4));
  CHECK(histogram.num() == 9);
  CHECK(is_near(histogram.sum(), 6.0 / 30 + 3 * 11.0 / 30));
  CHECK(is_near(histogram.sum_squares(), 6.0 / 900 + 3 * 121.0 / 900));
}

TEST_CASE("a histogram without values has no range") {
  const auto histogram = histogram_of({}).summary().value(0).histo();
  CHECK(histogram.bucket_size() == 30);
  CHECK(histogram.num() == 0);
  CHECK(histogram.min() == 0);
  CHECK(histogram.max() == 0);
}

TEST_CASE("a histogram of values in all bins ends at -1 and 1") {
  BinCounts counts;
  counts.fill(1);
  const auto histogram = histogram_of(counts).summary().value(0).histo();
  CHECK(histogram.min() == -1);
  CHECK(histogram.max() == 1);
  CHECK(is_near(histogram.sum(), 0));
}
