// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/measure/range.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace gradmon {

Range range_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {values.front(), median, values.back()};
}

Interval median_interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  // The number of values below the median is binomial(n, 1/2); its normal approximation, rounded outwards.
  const auto below = static_cast<std::ptrdiff_t>(std::floor((n - 1) / 2 - 0.98 * std::sqrt(n)));
  const auto cut = static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, below));
  return {values[cut], values[values.size() - 1 - cut]};
}

std::string text_of(const Range& range) {
  return text_of(range.minimum) + " " + text_of(range.median) + " " + text_of(range.maximum);
}

std::string text_of(double value) {
  char text[64];
  const double size = std::fabs(value);
  const int decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.1 ? 3 : 5;
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

}  // namespace gradmon
