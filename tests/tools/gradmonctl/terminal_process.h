// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tools/gradmonctl/cli/screen.h"

namespace gradmon {

// Runs gradmonctl to its end in a terminal of this size. Returns the lines that it shows; throws if its
// exit code is not 0. `environment`: NAME=VALUE, added to the environment of this process without COLUMNS
// and LINES, which override the size.
std::vector<std::string> lines_in_terminal(const Screen& screen, const std::vector<std::string>& arguments,
                                           const std::vector<std::string>& environment);

// The lines of `text` without their line feeds and carriage returns.
std::vector<std::string> lines_of(const std::string& text);

}  // namespace gradmon
