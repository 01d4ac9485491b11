// SPDX-License-Identifier: Apache-2.0
// The tensors in what a module of Python takes and gives.
#pragma once

#include <pybind11/pybind11.h>

#include "hooks/observe/forward_entry.h"

namespace gradmon {

// Of a tensor, a tuple, a list or a dict, however nested; what else there is
// counts as a place. With the GIL; throws what Python throws.
ForwardTensors tensors_of(const pybind11::handle& value);
// Of what a module is called with: behind those by place the ones by name, under
// theirs, which are not counted as places.
ForwardTensors tensors_of_call(const pybind11::handle& inputs, const pybind11::dict& keywords);

}  // namespace gradmon
