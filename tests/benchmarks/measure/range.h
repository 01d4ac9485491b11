// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace gradmon {

// The spread of repeated measurements.
struct Range {
  double minimum = 0;
  double median = 0;
  double maximum = 0;
};

// `values`: at least one.
Range range_of(std::vector<double> values);

// The 95 % confidence interval of the median, for any distribution: its bounds are two of the
// sorted values. Fewer than six values give the interval of all values.
struct Interval {
  double low = 0;
  double high = 0;
};
Interval median_interval(std::vector<double> values);

// "0.81 0.93 0.97"
std::string text_of(const Range& range);
// Four significant digits, never scientific below 10¹⁵.
std::string text_of(double value);

}  // namespace gradmon
