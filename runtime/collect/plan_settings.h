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
bool writes_format(const Config& config, Config::Format format);
// Whether ur_distribution has an effect: TensorBoard alone holds histograms.
bool collects_histograms(const Config& config);
// Whether the config asks for at least one kind of output.
bool collects_anything(const Config& config);
// Whether `module_ranks` includes the rank (empty: all ranks).
bool includes_rank(const Config& config, Rank rank);

}  // namespace gradmon
