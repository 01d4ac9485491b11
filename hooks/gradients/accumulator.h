// SPDX-License-Identifier: Apache-2.0
// Questions about the torch node that accumulates a parameter's gradient.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include "hooks/observe/graph_node.h"

namespace gradmon {

// False if the parameter's shape has changed (LazyLinear, `.data = `). The old accumulator must then be
// released: while it is held, torch makes no new one, and backward() throws.
bool fits(const torch::autograd::Node& accumulator, const at::Tensor& parameter);

// True if the backward pass that runs on this thread accumulates into this leaf.
bool reaches(const at::Tensor& leaf);

}  // namespace gradmon
