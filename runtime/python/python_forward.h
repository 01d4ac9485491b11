// SPDX-License-Identifier: Apache-2.0
// Finds the tensors in the inputs and outputs of a Python module.
#pragma once

#include <pybind11/pybind11.h>

#include "hooks/observe/forward_entry.h"

namespace gradmon {

// The tensors in a value: a tensor, or nested tuples, lists, dicts and dataclasses. Any other value
// counts as a place. With the GIL; throws what Python throws.
ForwardTensors tensors_of(const pybind11::handle& value);
// The tensors in a module's arguments: first the positional ones, then the keyword arguments, by name.
// Keyword arguments do not count as places.
ForwardTensors tensors_of_call(const pybind11::handle& inputs, const pybind11::dict& keywords);

}  // namespace gradmon
