// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tools/gradmonctl/doctor/finding.h"

namespace gradmon {

// The source of the config file's path.
enum class ConfigNamed : std::uint8_t { by_option, by_job_or_default };

// Checks that the config file can be read and is valid. An invalid file is a failure. An
// unreadable file is a failure only if --config names it: the job's file may be on
// another host.
Finding examine_config_file(const std::string& file, ConfigNamed named);

}  // namespace gradmon
