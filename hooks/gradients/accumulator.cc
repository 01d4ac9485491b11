// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/accumulator.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

namespace gradmon {

bool fits(const torch::autograd::Node& accumulator, const at::Tensor& parameter) {
  return accumulator.input_metadata(0).is_same_shape(parameter);
}

bool reaches(const at::Tensor& leaf) {
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (nodes == nullptr) return false;
  // Makes an accumulator if the leaf has none: try_get_grad_accumulator() does not lock the field, which a
  // forward on another thread sets.
  const auto accumulator = torch::autograd::impl::grad_accumulator(leaf);
  return accumulator && nodes->count(accumulator.get()) > 0;
}

}  // namespace gradmon
