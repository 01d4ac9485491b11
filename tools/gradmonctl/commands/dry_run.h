// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/commands/change_command.h"

namespace gradmon {

// gradmonctl set --dry-run: asks the live job, and prints the lines of the config file that
// would change and the effect on each rank. Returns the exit code that `set --wait` would
// return: 1 if a rank would reject the change or no target would match, 7 if a rank does
// not answer.
int dry_run(const ChangeRequest& request, const AskJob& ask, const Console& console);

// Prints the warnings of the tried config to `console.err`.
void report_warnings(const Status& status, const Console& console);

// Prints the verdict of a dry run to `console.err`. `reply.status` must be set. Returns the exit
// code.
int report_dry_run(const CommandReply& reply, const Console& console);

// Prints the lines of `request.file` that would change, and validates the result. Asks no job. Returns the
// exit code.
int dry_run_of_file(const ChangeRequest& request, const Console& console);

}  // namespace gradmon
