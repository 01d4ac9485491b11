// SPDX-License-Identifier: Apache-2.0
// A model's names as targets mean them.
#pragma once

#include <vector>

#include "hooks/target_match.h"
#include "hooks/watched_model.h"

namespace gradmon {

std::vector<TargetName> parameter_names(const WatchedModel& model);
// The root, whose name is empty, among them.
std::vector<TargetName> module_names(const WatchedModel& model);
// What targets are matched against: parameters, then modules but the root.
std::vector<TargetName> target_names(const WatchedModel& model);

}  // namespace gradmon
