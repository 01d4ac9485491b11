// SPDX-License-Identifier: Apache-2.0
// The threshold in float32 below which a number counts as zero.
#pragma once

namespace gradmon {

// The smallest float that is not below eps: for every float x, abs(x) < eps in double if and only if
// abs(x) < float_threshold(eps) in float.
float float_threshold(double eps);

}  // namespace gradmon
