// SPDX-License-Identifier: Apache-2.0
// What records call the modules of one plan.
#pragma once

#include <string>
#include <vector>

#include "hooks/rows/hook_settings.h"
#include "hooks/names/squash_name.h"
#include "hooks/names/target_match.h"

namespace gradmon {

// What records call modules: as the config's targets write them (see record_names).
std::vector<std::string> activation_record_names(const HookSettings& settings,
                                                 const std::vector<TargetName>& modules);
std::vector<std::string> l2_record_names(const L2Settings& settings, const std::vector<TargetName>& modules,
                                         Squash squash);

}  // namespace gradmon
