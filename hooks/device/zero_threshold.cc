// SPDX-License-Identifier: Apache-2.0
#include "hooks/device/zero_threshold.h"

#include <cmath>
#include <limits>

namespace gradmon {

float float_threshold(double eps) {
  if (!(eps <= static_cast<double>(std::numeric_limits<float>::max()))) {
    return std::isnan(eps) ? 0.0F : std::numeric_limits<float>::infinity();
  }
  const float rounded = static_cast<float>(eps);
  return static_cast<double>(rounded) < eps ? std::nextafter(rounded, std::numeric_limits<float>::infinity())
                                            : rounded;
}

}  // namespace gradmon
