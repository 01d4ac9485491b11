// SPDX-License-Identifier: Apache-2.0
// A config, translated for the folders that must not know it. Pure.
#pragma once

#include <string>

#include "control/config/config.h"
#include "control/step.h"
#include "hooks/rows/hook_settings.h"
#include "writers/queue/layout.h"

namespace gradmon {

// Why a config cannot be carried out with what this version has; "" if it can.
std::string objection_to(const Config& config);

TargetSelection selection_of(const Config& config);
HookSettings hook_settings_of(const Config& config, Revision revision);
Layout layout_of(const Config& config, Revision revision);
bool has_format(const Config& config, Config::Format format);
// Whether it asks for anything at all.
bool asks_for_a_kind(const Config& config);
// Whether modules and parameters are watched on that rank.
bool watched_on(const Config& config, Rank rank);

}  // namespace gradmon
