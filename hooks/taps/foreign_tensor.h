// SPDX-License-Identifier: Apache-2.0
// An array that is not torch's, as a tensor for the statistics.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <tl/expected.hpp>

#include "hooks/arrays/foreign_array.h"

namespace gradmon {

// A tensor with the array's elements and sizes, or the reason why torch cannot have it. The elements along a
// dimension with a negative stride are in reversed order, which no statistic sees: torch has no negative
// strides. The tensor is a view of the array's memory, and must not be used once that is freed; where
// addresses or strides are no multiples of the element's size it is a copy. The array has passed
// memory_of(), and its memory can be read. Throws what torch throws. Any thread.
tl::expected<at::Tensor, std::string> tensor_of(const ForeignArray& array);

}  // namespace gradmon
