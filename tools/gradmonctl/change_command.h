// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/command_line.h"
#include "tools/gradmonctl/job.h"

namespace gradmon {

// gradmonctl on, off and set. With --wait it asks for the verdict until every
// rank has applied it, and prints the step (nothing where no change was
// needed). Returns the exit code.
int change_command(const ChangeRequest& request, const AskJob& ask, const Pace& pace, const Console& console);

}  // namespace gradmon
