// SPDX-License-Identifier: Apache-2.0
// A model's names as targets mean them.
#pragma once

#include <vector>

#include "hooks/names/squash_name.h"
#include "hooks/names/target_match.h"
#include "hooks/names/watched_model.h"

namespace gradmon {

std::vector<TargetName> parameter_names(const WatchedModel& model);
// The root, whose name is empty, among them.
std::vector<TargetName> module_names(const WatchedModel& model);
// What targets are matched against: parameters, then modules but the root.
std::vector<TargetName> target_names(const WatchedModel& model);

// Of modules that have one name once wrappers' parts are out of it (see squash_name.h),
// in the order from outside in, one: what is wrapped, but of what torch.compile has made
// the outside, as nothing is seen within.
std::vector<WatchedModule> without_wrappers(std::vector<WatchedModule> modules);

}  // namespace gradmon
