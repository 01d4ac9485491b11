// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include "tools/gradmonctl/cli/console.h"

namespace gradmon {

struct ValidateRequest {
  std::string file;
};

// gradmonctl validate: prints all errors and warnings of a config file to `console.err`. Returns the exit
// code: 6 for an invalid file, 1 if it cannot be read.
int validate_command(const ValidateRequest& request, const Console& console);

}  // namespace gradmon
