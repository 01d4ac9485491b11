// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

#include "control/host/environment.h"
#include "control/link/start_hub.h"
#include "tools/gradmonctl/doctor/finding.h"

namespace gradmon {

// Whether the directories of jobs can be made, who may enter them, how much room
// they have, and whether gradmon-hub is found, starts and answers. A directory and
// a hub are made for the trial, and are gone afterwards. `object` is the file that
// gradmon-hub is to lie beside: a training looks beside its own library.
Findings examine_hub(const EnvironmentLookup& environment = process_environment,
                     const std::filesystem::path& object = own_object());

// What a file system can still take.
struct Room {
  std::uint64_t free_bytes = 0;
  bool files = true;  // more can be made
};
Finding examine_room(const std::filesystem::path& base, const Room& room);

}  // namespace gradmon
