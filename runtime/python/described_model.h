// SPDX-License-Identifier: Apache-2.0
// What a torch.nn.Module of Python is made of.
#pragma once

#include <pybind11/pybind11.h>

#include "hooks/names/watched_model.h"

namespace gradmon {

// A module by its address, which lives as long as it is watched.
inline const void* identity_of(const pybind11::handle& module) { return module.ptr(); }

// Parameters under all their names, tied ones under those of each module that has them. With
// the GIL; throws what Python throws.
WatchedModel described_model(const pybind11::handle& model);

}  // namespace gradmon
