// SPDX-License-Identifier: Apache-2.0
// Reentrant activation checkpointing, which libtorch has in Python only: memory
// for time.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace gradmon {

// segment(x), of whose graph only `x` is kept: the backward runs `segment` again
// and goes back through that by a backward of its own, in which the parameters of
// `segment` get their gradients. `x` must be unchanged until then.
//
// `segment` gives the same new tensor each time it is called (so it draws no
// random numbers) and lives as long as the graph. The gradients are bit for bit
// those of segment(x), whether `x` needs one itself or not. Works with
// backward(), not with autograd::grad: the inner backward accumulates into
// leaves.
at::Tensor checkpoint(std::function<at::Tensor(const at::Tensor&)> segment, const at::Tensor& x);

}  // namespace gradmon
