// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace gradmon {

// What several measurements of the same thing gave.
struct Range {
  double minimum = 0;
  double median = 0;
  double maximum = 0;
};

// `values`: at least one.
Range range_of(std::vector<double> values);

// Where the true median lies with 95 % confidence, whatever the distribution:
// between two of the values in their order. From six values on; of fewer, all.
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
