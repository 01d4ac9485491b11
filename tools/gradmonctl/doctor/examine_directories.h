// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "tools/gradmonctl/doctor/finding.h"

namespace gradmon {

// Checks the directory of the config file: its file system, events on saves, and the exchange of files by
// write-back, so that no save is lost. Creates temporary files there and removes them.
Findings examine_config_directory(const std::filesystem::path& directory);
// Checks the output directory, which need not exist yet: its file system, the creation of files, and the
// users who may write to it.
Findings examine_output_directory(const std::filesystem::path& directory);
// Checks a directory of keys (curve_keys.h).
Finding examine_keys(const std::filesystem::path& directory);

}  // namespace gradmon
