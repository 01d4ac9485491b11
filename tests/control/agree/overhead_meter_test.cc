// SPDX-License-Identifier: Apache-2.0
#include "control/agree/overhead_meter.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;

bool nearly_equal(double a, double b) { return a > b - 1e-9 && a < b + 1e-9; }

// A training thread. A step takes 10 ms, a collected step `cost` more.
class Training {
 public:
  Training(OverheadMeter& meter, std::int64_t interval) : meter_(meter), interval_(interval) {}

  void collect(int times, milliseconds cost) {
    for (int i = 0; i < times; ++i) {
      meter_.begin_collected(Step{step_}, now_, spent_);
      spent_ = cost;
      now_ += cost + interval_ * milliseconds{10};
      step_ += interval_;
    }
  }

 private:
  OverheadMeter& meter_;
  const std::int64_t interval_;
  std::int64_t step_ = 5;
  OverheadMeter::Time now_ = std::chrono::hours{9};
  OverheadMeter::Time spent_{};
};

TEST_CASE("nothing is measured until the round after the first has ended") {
  OverheadMeter meter;
  meter.begin_plan(Revision{4});
  Training training(meter, 1);
  training.collect(2, milliseconds{1});
  REQUIRE(meter.measured().collected == 0);
  REQUIRE(meter.measured().share == 0);
  training.collect(1, milliseconds{1});
  REQUIRE(meter.measured().collected == 1);
  REQUIRE(meter.measured().revision == Revision{4});
}

TEST_CASE("the share is the time spent divided by the wall time of whole rounds") {
  OverheadMeter meter;
  Training every(meter, 1);
  every.collect(7, milliseconds{10});
  REQUIRE(nearly_equal(meter.measured().share, 0.5));
  REQUIRE(meter.measured().steps == 5);
  meter.begin_plan(Revision{2});
  Training tenth(meter, 10);
  tenth.collect(7, milliseconds{25});
  REQUIRE(nearly_equal(meter.measured().share, 0.2));
  REQUIRE(meter.measured().steps == 50);
}

TEST_CASE("the window is the last eight rounds") {
  OverheadMeter meter;
  Training training(meter, 3);
  training.collect(30, milliseconds{30});
  REQUIRE(nearly_equal(meter.measured().share, 0.5));
  REQUIRE(meter.measured().collected == 28);
  REQUIRE(meter.measured().steps == 24);
  training.collect(9, milliseconds{0});
  REQUIRE(meter.measured().share == 0);
}

TEST_CASE("the first round of a plan is warm-up and does not count") {
  OverheadMeter meter;
  Training training(meter, 1);
  training.collect(1, milliseconds{4000});
  training.collect(9, milliseconds{0});
  REQUIRE(meter.measured().collected == 8);
  REQUIRE(meter.measured().share == 0);
}

TEST_CASE("a new plan drops all measurements") {
  OverheadMeter meter;
  Training(meter, 1).collect(20, milliseconds{10});
  meter.begin_plan(Revision{2});
  REQUIRE(meter.measured().collected == 0);
  REQUIRE(meter.measured().share == 0);
  Training(meter, 1).collect(3, milliseconds{0});
  REQUIRE(meter.measured().share == 0);
}

TEST_CASE("a clock that stands still gives a share of 0") {
  OverheadMeter meter;
  for (int i = 0; i < 20; ++i) meter.begin_collected(Step{i}, milliseconds{1}, milliseconds{0});
  REQUIRE(meter.measured().share == 0);
}

}  // namespace
}  // namespace gradmon
