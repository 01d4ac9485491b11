// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/sliding_window.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "control/alert_rule.h"
#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

namespace {

double plain_median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double plain_deviation(const std::vector<double>& values) {
  const double median = plain_median(values);
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::fabs(value - median));
  return plain_median(deviations);
}

}  // namespace

TEST_CASE("median and deviation are those of the last values, for series of every kind") {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  for (const std::int64_t length : {kShortestWindow, std::int64_t{17}, std::int64_t{64}, kLongestWindow}) {
    for (int series = 0; series < 6; ++series) {
      SlidingWindow window(length);
      std::vector<double> all;
      for (int i = 0; i < 700; ++i) {
        const double choices[] = {
            normal(random),         std::floor(3 * normal(random)), 1.0,
            static_cast<double>(i), static_cast<double>(-i),        std::exp(20 * normal(random))};
        all.push_back(choices[series]);
        window.add(all.back());
        const auto kept = std::min<std::ptrdiff_t>(length, static_cast<std::ptrdiff_t>(all.size()));
        const std::vector<double> last(all.end() - kept, all.end());
        REQUIRE(window.size() == kept);
        REQUIRE(window.median() == plain_median(last));
        REQUIRE(window.median_deviation() == plain_deviation(last));
        REQUIRE(window.least_median_deviation() <= window.median_deviation());
        REQUIRE(window[0] == last.front());
        REQUIRE(window[kept - 1] == last.back());
      }
    }
  }
}
