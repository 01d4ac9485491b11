// SPDX-License-Identifier: Apache-2.0
// The names of parameters and modules in the records of one plan.
#pragma once

#include <string>
#include <vector>

#include "hooks/names/squash_name.h"
#include "hooks/names/target_match.h"
#include "hooks/rows/hook_settings.h"

namespace gradmon {

// The names of parameters and modules as rows have them; one for each of `names`, in their order.
std::vector<std::string> target_record_names(const HookSettings& settings,
                                             const std::vector<TargetName>& names);
// record_names() of modules; a name that the config's targets write in full stays in full. One name for each
// of `modules`, in their order.
std::vector<std::string> activation_record_names(const HookSettings& settings,
                                                 const std::vector<TargetName>& modules);
// Call it only if `settings.l2` is set.
std::vector<std::string> l2_record_names(const HookSettings& settings,
                                         const std::vector<TargetName>& modules);

}  // namespace gradmon
