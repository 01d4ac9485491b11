// SPDX-License-Identifier: Apache-2.0
// Questions about the node of torch that accumulates a parameter's gradient.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include "hooks/observe/graph_node.h"

namespace gradmon {

// False if the parameter's shape has changed (LazyLinear, `.data = `). The old accumulator must then be
// released: while it is held, torch makes no new one, and backward() throws.
bool fits(const torch::autograd::Node& accumulator, const at::Tensor& parameter);

// Whether the backward pass that runs on this thread executes this accumulator.
bool reaches(const NodePointer& accumulator);

// Whether the parameter has post-accumulate hooks (torch >= 2.1), which run ahead of the accumulator's
// post-hooks. True also after the last one was removed.
bool has_post_accumulate_hooks(const at::Tensor& parameter);

}  // namespace gradmon
