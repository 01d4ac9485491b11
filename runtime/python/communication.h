// SPDX-License-Identifier: Apache-2.0
// Bindings for gradmon/communication/waits.py, which follows calls and waits of torch's Python classes.
#pragma once

#include <pybind11/pybind11.h>

namespace gradmon {

void define_communication(pybind11::module_& m);

}  // namespace gradmon
