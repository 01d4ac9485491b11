// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/anomaly_rules.h"

#include <cmath>
#include <limits>
#include <vector>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

SlidingWindow window_of(const std::vector<double>& values, std::int64_t length = 16) {
  SlidingWindow window(length);
  for (const double value : values) window.add(value);
  return window;
}

}  // namespace

TEST_CASE("AnomalyTurbulence fires above the mean by more than the threshold, in either sign") {
  CHECK(is_turbulent(27.77, 5.55, 0.5));
  CHECK(is_turbulent(-27.77, 5.55, 0.5));
  CHECK_FALSE(is_turbulent(1.5, 1, 0.5));
  CHECK(is_turbulent(std::nextafter(1.5, 2), 1, 0.5));
  CHECK_FALSE(is_turbulent(0, 5.55, 0.5));
  CHECK(is_turbulent(kInf, 5.55, 0.5));
  CHECK_FALSE(is_turbulent(kNan, 5.55, 0.5));
  CHECK(is_turbulent(1e-30, 0, 0.5));
  CHECK_FALSE(is_turbulent(0, 0, 0.5));
}

TEST_CASE("AnomalyNan fires on NaN, and with a threshold on large values") {
  CHECK(is_nan_or_large(kNan, std::nullopt));
  CHECK_FALSE(is_nan_or_large(kInf, std::nullopt));
  CHECK(is_nan_or_large(kNan, 1e10));
  CHECK(is_nan_or_large(kInf, 1e10));
  CHECK(is_nan_or_large(-2e10, 1e10));
  CHECK_FALSE(is_nan_or_large(1e10, 1e10));
  CHECK(is_nan_or_large(1e-9, 0.0));
}

TEST_CASE("AnomalySpike counts robust standard deviations above the median") {
  const SlidingWindow window = window_of({9, 10, 11, 10, 12, 8, 10, 11, 9});  // median 10, deviation 1
  CHECK_FALSE(is_spike(24.825, window, 10));  // the limit is 10 + 10 · 1.4826
  CHECK(is_spike(24.827, window, 10));
  CHECK_FALSE(is_spike(-1000, window, 10));
  CHECK_FALSE(is_spike(kNan, window, 10));
  CHECK(is_spike(kInf, window, 10));
}

TEST_CASE("in a constant history AnomalySpike takes a hundredth of the median as the deviation") {
  CHECK(is_spike(5.6, window_of({5, 5, 5, 5, 5}), 10));
  CHECK_FALSE(is_spike(5.4, window_of({5, 5, 5, 5, 5}), 10));
  CHECK(is_spike(-4.4, window_of({-5, -5, -5, -5, -5}), 10));
  CHECK_FALSE(is_spike(1000, window_of({0, 0, 0, 0, 0}), 10));
}

TEST_CASE("AnomalySpike and AnomalyVanish need a quarter of their window") {
  CHECK_FALSE(is_spike(1000, window_of({1, 1, 1}), 10));
  CHECK(is_spike(1000, window_of({1, 1, 1, 1}), 10));
  CHECK_FALSE(is_low(0, window_of({1, 1, 1}), 0.5));
  CHECK(is_low(0, window_of({1, 1, 1, 1}), 0.5));
}

TEST_CASE("a norm is low below a fraction of the median, and at 0") {
  const SlidingWindow window = window_of({1, 2, 3, 2, 1, 2});
  CHECK(is_low(0.0019, window, 1e-3));
  CHECK_FALSE(is_low(0.002, window, 1e-3));
  CHECK(is_low(0, window, 0));
  CHECK_FALSE(is_low(1e-300, window, 0));
  CHECK_FALSE(is_low(0, window_of({0, 0, 0, 0, 0}), 1e-3));
}

TEST_CASE("the mean begins with the first value as it is and then moves by a hundredth") {
  const double first = next_mean(kNan, -4);
  CHECK(first == 4);
  CHECK(std::abs(next_mean(first, 2) - (0.99 * 4 + 0.01 * 2)) < 1e-9);
}
