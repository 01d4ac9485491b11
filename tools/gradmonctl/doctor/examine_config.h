// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tools/gradmonctl/doctor/finding.h"

namespace gradmon {

// Who says that this is the config file.
enum class ConfigNamed : std::uint8_t { by_option, by_job_or_default };

// The config file: readable, and valid. One with a fault is a failure; one that cannot
// be read is a failure where --config names it, as it may be on another host otherwise.
Finding examine_config_file(const std::string& file, ConfigNamed named);

}  // namespace gradmon
