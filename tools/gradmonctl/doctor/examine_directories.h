// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "tools/gradmonctl/doctor/finding.h"

namespace gradmon {

// The directory of the config file: its file system, whether saves are noticed
// at once, whether write-back can lose no save. Makes files there, and removes them.
Findings examine_config_directory(const std::filesystem::path& directory);
// The output directory, which may not exist yet: its file system, whether files can
// be made there, who may write to it.
Findings examine_output_directory(const std::filesystem::path& directory);
// A directory of keys (curve_keys.h).
Finding examine_keys(const std::filesystem::path& directory);

}  // namespace gradmon
