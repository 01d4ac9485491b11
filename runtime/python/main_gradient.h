// SPDX-License-Identifier: Apache-2.0
// What a framework adds a parameter's gradients to in place of `grad`.
#pragma once

#include <pybind11/pybind11.h>

#include "hooks/names/watched_model.h"

namespace gradmon {

// The parameter's `main_grad`; undefined: none that is a tensor. With the GIL.
at::Tensor main_grad_of(const pybind11::handle& parameter);
// With `grad_added_to_main_grad`, which Megatron's layers set where a kernel has added to it.
// Any thread: it takes the GIL.
MainGradient main_gradient_of(const at::Tensor& parameter);

}  // namespace gradmon
