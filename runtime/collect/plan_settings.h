// SPDX-License-Identifier: Apache-2.0
// Translates a config into settings for hooks/ and writers/, which must not include Config. Pure.
#pragma once

#include "control/config/config.h"
#include "control/step.h"
#include "hooks/rows/hook_settings.h"
#include "writers/queue/layout.h"

namespace gradmon {

TargetSelection selection_of(const Config& config);
HookSettings hook_settings_of(const Config& config, Revision revision);
Layout layout_of(const Config& config, Revision revision);
// Returns true if `module_ranks` includes the rank (empty: all ranks).
bool includes_rank(const Config& config, Rank rank);

}  // namespace gradmon
