// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/command_line.h"
#include "tools/gradmonctl/console.h"

namespace gradmon {

// gradmonctl keygen: a directory of keys, or one more client in it. Prints no
// key. Returns the exit code.
int keygen_command(const KeygenRequest& request, const Console& console);

}  // namespace gradmon
