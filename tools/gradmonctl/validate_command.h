// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/command_line.h"
#include "tools/gradmonctl/console.h"

namespace gradmon {

// gradmonctl validate: all errors and warnings of a config file go to
// `console.err`. Returns the exit code: 6 where there are errors, 1 where the
// file cannot be read.
int validate_command(const ValidateRequest& request, const Console& console);

}  // namespace gradmon
