// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/anomaly_rules.h"

#include <algorithm>
#include <cmath>

namespace gradmon {
namespace {

constexpr double kDecay = 0.99;               // msprobe's
constexpr double kSigmaOfDeviation = 1.4826;  // a normal distribution's σ / median absolute deviation
constexpr double kLeastScale = 0.01;          // of abs(median)

}  // namespace

bool is_turbulent(double x, double mean, double threshold) { return std::fabs(x) > mean * (1 + threshold); }

bool is_nan_or_large(double x, std::optional<double> threshold) {
  return std::isnan(x) || (threshold && std::fabs(x) > *threshold);
}

bool is_spike(double x, const SlidingWindow& before, double threshold) {
  if (std::isnan(x) || before.size() < least_values(before.length())) return false;
  const double median = before.median();
  const double least_scale = kLeastScale * std::fabs(median);
  const auto scale_of = [=](double deviation) {
    return std::max(kSigmaOfDeviation * deviation, least_scale);
  };
  // True for nearly all values, and avoids computing the deviation.
  if (x - median <= threshold * scale_of(before.least_median_deviation())) return false;
  const double scale = scale_of(before.median_deviation());
  return scale > 0 && x - median > threshold * scale;
}

bool is_low(double x, const SlidingWindow& before, double fraction) {
  if (before.size() < least_values(before.length())) return false;
  const double median = before.median();
  return median > 0 && (x == 0 || x < fraction * median);
}

double next_mean(double mean, double x) {
  const double size = std::fabs(x);
  return std::isnan(mean) ? size : kDecay * mean + (1 - kDecay) * size;
}

}  // namespace gradmon
