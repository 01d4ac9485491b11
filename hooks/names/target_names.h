// SPDX-License-Identifier: Apache-2.0
// The names of a model that the targets of a config are matched against.
#pragma once

#include <vector>

#include "hooks/names/squash_name.h"
#include "hooks/names/target_match.h"
#include "hooks/names/watched_model.h"

namespace gradmon {

std::vector<TargetName> parameter_names(const WatchedModel& model);
// Includes the root, whose name is empty and which has a root_name.
std::vector<TargetName> module_names(const std::vector<WatchedModule>& modules);
// The names that targets are matched against: parameters, then modules without the root.
std::vector<TargetName> target_names(const WatchedModel& model);

// record_names() of the parameters and of the modules, each in the model's order.
struct RowNames {
  std::vector<std::string> parameters, modules;
};
RowNames row_names(const WatchedModel& model, Squash squash);

// The parameters among `matched` (indices into target_names()) that this rank writes, ascending; each tensor
// once.
std::vector<std::size_t> written_parameters(const WatchedModel& model,
                                            const std::vector<std::size_t>& matched);

// Keeps one module for each unwrapped_name(). `modules` lists a wrapper before the module that it wraps.
// Keeps the wrapped module; keeps the wrapper if the module is within compiled code (`_orig_mod`,
// within_compiled), whose calls are not observed.
std::vector<WatchedModule> without_wrappers(std::vector<WatchedModule> modules);

}  // namespace gradmon
