// SPDX-License-Identifier: Apache-2.0
// The tensors in what a module of Python takes and gives.
#pragma once

#include <pybind11/pybind11.h>

#include "hooks/forward_entry.h"

namespace gradmon {

// Of a tensor, a tuple, a list or a dict, however nested; what else there is
// counts as a place. With the GIL; throws what Python throws.
ForwardTensors tensors_of(const pybind11::handle& value);

}  // namespace gradmon
