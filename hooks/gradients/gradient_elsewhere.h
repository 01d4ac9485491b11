// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "hooks/rows/reading.h"

namespace gradmon {

// Gradient storage other than `grad`: Megatron's main_grad, FSDP2's accumulated gradient.
struct GradientElsewhere {
  MainGradient main;
  at::Tensor accumulated;  // UnshardedParameter::accumulated

  // May take the GIL: the caller must not hold a lock that a thread with the GIL may wait for.
  static GradientElsewhere of(const WatchedTensor& parameter) {
    GradientElsewhere elsewhere;
    if (parameter.main_gradient) elsewhere.main = parameter.main_gradient();
    if (parameter.sharding && parameter.sharding->unsharded)
      elsewhere.accumulated = parameter.sharding->unsharded().accumulated;
    return elsewhere;
  }
};

}  // namespace gradmon
