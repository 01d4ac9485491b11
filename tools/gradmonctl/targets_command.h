// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/command_line.h"
#include "tools/gradmonctl/job.h"

namespace gradmon {

// gradmonctl targets: what each rank watches, what matches nothing, and what has
// not fired. As a dry run: what each rank would watch under another config, and
// nothing changes; the exit code is then that of `set --dry-run`. 7 where a rank
// does not answer.
int targets_command(const TargetsRequest& request, const AskJob& ask, const Console& console);

}  // namespace gradmon
