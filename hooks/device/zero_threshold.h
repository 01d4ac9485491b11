// SPDX-License-Identifier: Apache-2.0
// When a number counts as zero, in float32.
#pragma once

namespace gradmon {

// The smallest float that is not below eps: for every float x, abs(x) < eps in double if and only if
// abs(x) < float_threshold(eps) in float.
float float_threshold(double eps);

}  // namespace gradmon
