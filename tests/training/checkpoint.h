// SPDX-License-Identifier: Apache-2.0
// Reentrant activation checkpointing, which takes less memory and more time. libtorch has it
// in Python only.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace gradmon {

// Returns segment(x), and keeps only `x` of its graph. The backward runs `segment` again and
// an inner backward through it, in which the parameters of `segment` get their gradients.
// `x` must not change before that.
//
// `segment` must return an equal new tensor at each call (so it draws no random numbers),
// and what it refers to must live as long as the graph. The gradients are bit for bit those
// of segment(x), whether `x` requires a gradient or not. Works with backward(), not with
// autograd::grad: the inner backward accumulates into leaves.
at::Tensor checkpoint(std::function<at::Tensor(const at::Tensor&)> segment, const at::Tensor& x);

}  // namespace gradmon
