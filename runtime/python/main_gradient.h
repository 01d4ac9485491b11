// SPDX-License-Identifier: Apache-2.0
// The tensor in which a framework accumulates a parameter's gradient instead of `grad` (`main_grad`).
#pragma once

#include <pybind11/pybind11.h>

#include "hooks/names/watched_model.h"

namespace gradmon {

// The parameter's `main_grad`; undefined if missing, or if it is no tensor. With the GIL.
at::Tensor main_grad_of(const pybind11::handle& parameter);
// The `main_grad`, and true if a fused kernel has added to it (Megatron's `grad_added_to_main_grad`). Any
// thread: takes the GIL.
MainGradient main_gradient_of(const pybind11::object& parameter);

}  // namespace gradmon
