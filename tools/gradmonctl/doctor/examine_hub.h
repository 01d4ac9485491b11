// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "control/host/environment.h"
#include "control/link/start_hub.h"
#include "tools/gradmonctl/doctor/finding.h"

namespace gradmon {

// Checks that a private job directory can be created, that its file system has room,
// and that gradmon-hub is found, starts and answers. Creates a temporary job directory
// and hub, and removes both. gradmon-hub is searched beside the file `object`; a
// training process searches beside its own library.
Findings examine_hub(const EnvironmentLookup& environment = process_environment,
                     const std::filesystem::path& object = own_object());

// The free space of a file system.
struct FreeSpace {
  std::uint64_t free_bytes = 0;
  bool files = true;  // more files can be created
};
Finding check_free_space(const std::filesystem::path& base, const FreeSpace& room);

// True if a process has this argument. `command_line` is its /proc/PID/cmdline; an unreadable file, such as
// an ended process's, has no argument.
bool has_argument(const std::filesystem::path& command_line, const std::string& argument);

}  // namespace gradmon
