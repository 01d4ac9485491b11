// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradmon {

// What one launch, a bash script, printed line by line. Each rank prints one line,
// in no order. `$PRINT` in the script is print-launch-id. Ends it after a minute.
std::vector<std::string> lines_of(const std::string& script);

// The one line that all `ranks` ranks have printed; fails the test where they differ,
// are more or fewer, or name no launch.
std::string launch_id_of(const std::string& script, int ranks = 2);

// A port that nobody listened on a moment ago.
std::uint16_t free_port();

}  // namespace gradmon
