// SPDX-License-Identifier: Apache-2.0
// The pass over a tensor that lies in the CPU's memory, whatever its strides.
#pragma once

#include <ATen/core/Tensor.h>

#include "hooks/stats/stats_kernel.h"

namespace gradmon {

// Whether memory_stats reads elements of this type.
bool reads_in_memory(c10::ScalarType type);

// `tensor`: strided, in memory that it owns whole, of a type that is read, not
// negated lazily. Dense memory is read flat, in chunks that depend on the size
// alone, on torch's threads where there are several; a dimension of stride 0 is
// read once; other strides piece by piece. Allocates nothing up to 8 dimensions.
PartialStats memory_stats(const at::Tensor& tensor, double eps);

}  // namespace gradmon
