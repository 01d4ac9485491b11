// SPDX-License-Identifier: Apache-2.0
// The hooks of any kind that autograd runs for a parameter's gradient.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <cstddef>

namespace gradmon {

// Does not count hooks on an accumulator that nobody holds: they are gone with it.
inline std::size_t gradient_hooks_on(const at::Tensor& parameter) {
  namespace impl = torch::autograd::impl;
  std::size_t count = impl::hooks(parameter).size();
  if (const auto accumulator = impl::try_get_grad_accumulator(parameter))
    count += accumulator->post_hooks().size() + accumulator->pre_hooks().size();
#if TORCH_VERSION_MAJOR >= 2
  count += impl::post_acc_grad_hooks(parameter) ? 1 : 0;
#endif
  return count;
}

// Runs the one hook that there is, as a backward would.
inline void run_gradient_hook_on(const at::Tensor& parameter) {
  namespace impl = torch::autograd::impl;
#if TORCH_VERSION_MAJOR >= 2
  if (const auto& hook = impl::post_acc_grad_hooks(parameter)) return (*hook)(parameter);
#endif
  (*impl::try_get_grad_accumulator(parameter)->post_hooks().at(0))({}, {parameter.detach()});
}

}  // namespace gradmon
