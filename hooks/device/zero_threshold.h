// SPDX-License-Identifier: Apache-2.0
// The threshold in float32 below which a number counts as zero.
#pragma once

#include <cmath>
#include <limits>

namespace gradmon {

// The smallest float that is not below eps: for every float x, abs(x) < eps in double if and only if
// abs(x) < float_threshold(eps) in float.
inline float float_threshold(double eps) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (!(eps <= static_cast<double>(std::numeric_limits<float>::max())))
    return std::isnan(eps) ? 0.0F : kInfinity;
  const float rounded = static_cast<float>(eps);
  return static_cast<double>(rounded) < eps ? std::nextafter(rounded, kInfinity) : rounded;
}

}  // namespace gradmon
