// SPDX-License-Identifier: Apache-2.0
// The conditions of the alert rules (ALERTS.md). Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "writers/alerts/sliding_window.h"

namespace gradmon {

// abs(x) > mean · (1 + threshold). `mean`: of abs(x) before this value.
bool is_turbulent(double x, double mean, double threshold);

// NaN, or abs(x) above the threshold if set.
bool is_nan_or_large(double x, std::optional<double> threshold);

// x is more than `threshold` robust standard deviations above the median of the values before it.
bool is_spike(double x, const SlidingWindow& before, double threshold);

// x is 0 or below `fraction` of the median of the values before it, and that median is above 0.
bool is_low(double x, const SlidingWindow& before, double fraction);

// The exponential mean of abs(x) after a finite x. `mean`: NaN before the first value.
double next_mean(double mean, double x);

// Number of values that a window needs before is_spike and is_low can be true.
constexpr std::int64_t least_values(std::int64_t window) { return window / 4; }

}  // namespace gradmon
