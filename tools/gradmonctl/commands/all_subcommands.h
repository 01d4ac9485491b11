// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/cli/subcommand.h"

namespace gradmon {

// Every command of gradmonctl, in the order of the help.
Subcommands all_subcommands();

}  // namespace gradmon
