// SPDX-License-Identifier: Apache-2.0
// For gradmon/communication/coalesced_calls.py, which follows coalesced calls by torch's Python classes.
#pragma once

#include <pybind11/pybind11.h>

namespace gradmon {

void define_coalescing(pybind11::module_& m);

}  // namespace gradmon
