// SPDX-License-Identifier: Apache-2.0
// Statistics of a tensor in CPU memory, with any strides, in one pass.
#pragma once

#include <ATen/core/Tensor.h>

#include "hooks/stats/stats_kernel.h"

namespace gradmon {

// Returns true if cpu_stats() reads elements of this type.
bool reads_in_memory(c10::ScalarType type);

// `tensor`: strided, its storage allocated in full, of a type that reads_in_memory() accepts, without the
// negative bit. Contiguous memory is read in chunks whose size depends on the number of elements only, on
// torch's threads if there are several chunks. A dimension of stride 0 is read once. Other strides are read
// run by run. Does not allocate up to 8 dimensions.
PartialStats cpu_stats(const at::Tensor& tensor, double eps);

}  // namespace gradmon
