// SPDX-License-Identifier: Apache-2.0
// Makes a tensor for the statistics from an array of another library.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <tl/expected.hpp>

#include "hooks/arrays/foreign_array.h"

namespace gradmon {

// A tensor with the array's elements and sizes, or the reason why torch cannot have it. Torch has no negative
// strides: along such a dimension the elements are in reversed order, which does not change any statistic.
// The tensor is a view of the array's memory, and must not be used after that memory is freed; it is a copy
// if addresses or strides are not multiples of the element's size. The array has passed memory_of(), and its
// memory can be read. Throws what torch throws. Any thread.
tl::expected<at::Tensor, std::string> tensor_of(const ForeignArray& array);

}  // namespace gradmon
