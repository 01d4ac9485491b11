// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/command_line.h"
#include "tools/gradmonctl/console.h"

namespace gradmon {

// Does what was asked, with the real network, clock and files. Returns the exit
// code. To be called once.
int perform(const Request& request, const Console& console);

}  // namespace gradmon
