// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/accumulator.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

namespace gradmon {

bool fits(const torch::autograd::Node& accumulator, const at::Tensor& parameter) {
  return accumulator.input_metadata(0).is_same_shape(parameter);
}

bool reaches(const NodePointer& accumulator) {
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  return nodes != nullptr && nodes->count(accumulator.get()) > 0;
}

bool has_post_accumulate_hooks([[maybe_unused]] const at::Tensor& parameter) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
  return torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr;
#else
  return false;
#endif
}

}  // namespace gradmon
