// SPDX-License-Identifier: Apache-2.0
// The same numbers by torch's own ops, for tensors that are not in the CPU's
// memory: queued on the device, several passes where the tensor is.
#pragma once

#include <ATen/core/Tensor.h>

#include "hooks/stats/device_numbers.h"

namespace gradmon {

// `tensor`: strided, real, not empty, any device. Its values by Op, queued on the
// current stream, no waiting. To be called without gradient mode. Throws what
// torch throws.
PendingNumbers device_stats(const at::Tensor& tensor, double eps);

}  // namespace gradmon
