// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tools/gradmonctl/show/screen.h"

namespace gradmon {

// What gradmonctl shows in a terminal of that size, to its end, line by line.
// `environment`: NAME=VALUE, in addition to this process's own.
std::vector<std::string> lines_in_terminal(const Screen& screen, const std::vector<std::string>& arguments,
                                           const std::vector<std::string>& environment);

}  // namespace gradmon
