// SPDX-License-Identifier: Apache-2.0
// Translates a config into settings for hooks/ and writers/, which must not include Config. Pure.
#pragma once

#include <string>

#include "control/config/config.h"
#include "control/step.h"
#include "hooks/rows/hook_settings.h"
#include "writers/queue/layout.h"

namespace gradmon {

// Why this version cannot carry out a config; "" if it can.
std::string objection_to(const Config& config);

TargetSelection selection_of(const Config& config);
HookSettings hook_settings_of(const Config& config, Revision revision);
Layout layout_of(const Config& config, Revision revision);
bool has_format(const Config& config, Config::Format format);
// Whether the config asks for at least one kind of output.
bool asks_for_a_kind(const Config& config);
// Whether `module_ranks` includes the rank (empty: all ranks).
bool watched_on(const Config& config, Rank rank);

}  // namespace gradmon
