// SPDX-License-Identifier: Apache-2.0
// Reads the parameters and modules of a Python torch.nn.Module.
#pragma once

#include <pybind11/pybind11.h>

#include "hooks/names/watched_model.h"

namespace gradmon {

// A module's identity: its address, which is unique while the module is watched.
inline const void* identity_of(const pybind11::handle& module) { return module.ptr(); }

// `source`: of its parameters that need gradients. Lists each parameter under all its names: a tied one once
// for each module that has it. With the GIL; throws what Python throws.
WatchedModel described_model(const pybind11::handle& model,
                             UnreducedSource source = UnreducedSource::accumulator);

}  // namespace gradmon
