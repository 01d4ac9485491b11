// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/kernels.h"

#include <cmath>
#include <cstdint>
#include <cstring>

namespace gradmon {
namespace {

double widen_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  double magnitude;
  if (exponent == 0x1f) {
    magnitude =
        fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(0x400 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

double widen_bfloat(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

double element(FloatType type, const void* data, std::size_t i) {
  switch (type) {
    case FloatType::float32:
      return static_cast<const float*>(data)[i];
    case FloatType::float64:
      return static_cast<const double*>(data)[i];
    case FloatType::float16:
    case FloatType::bfloat16:
      return widened(type, static_cast<const std::uint16_t*>(data)[i]);
  }
  return 0;
}

}  // namespace

double widened(FloatType type, std::uint16_t bits) {
  return type == FloatType::float16 ? widen_half(bits) : widen_bfloat(bits);
}

PartialStats reference_stats(FloatType type, const void* data, std::size_t count, double eps) {
  PartialStats stats;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = element(type, data, i);
    stats.min = x < stats.min ? x : stats.min;
    stats.max = x > stats.max ? x : stats.max;
    stats.sum += x;
    stats.sum_squares += x * x;
    stats.nans += std::isnan(x) ? 1 : 0;
    stats.zeros += std::fabs(x) < eps ? 1 : 0;
  }
  stats.elements = count;
  return stats;
}

}  // namespace gradmon
