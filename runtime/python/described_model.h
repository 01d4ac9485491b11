// SPDX-License-Identifier: Apache-2.0
// Reads the parameters and modules of a Python torch.nn.Module.
#pragma once

#include <pybind11/pybind11.h>

#include "hooks/names/watched_model.h"

namespace gradmon {

// A module's identity: its address, which is unique while the module is watched.
inline const void* identity_of(const pybind11::handle& module) { return module.ptr(); }

// `listed`: None, or the parameters that replace those of the model, as (name, tensor, sharding or None);
// `sharding` has the attributes of ParameterSharding (gradmon/sharded/listing.py). `plain_scope`: None, or
// WatchedModule::scope. `source`: for the parameters that need gradients.
//
// Lists each parameter under all its names: a tied one once for each module that has it. With the GIL;
// throws what Python throws.
WatchedModel described_model(const pybind11::handle& model, const pybind11::handle& listed,
                             const pybind11::handle& plain_scope, UnreducedSource source);

// True if the parameter is split over the tensor parallel group: Megatron marks it so. With the GIL.
bool is_split(const at::Tensor& parameter);

}  // namespace gradmon
