// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/commands/change_command.h"

namespace gradmon {

// gradmonctl set --dry-run: the lines of the config file that would change, and
// what the change would mean on each rank, asked of the live job. Returns what
// `set --wait` would end with: 1 where a rank would reject it or nothing would
// match, 7 where a rank does not answer.
int dry_run(const ChangeRequest& request, const AskJob& ask, const Console& console);

// Prints the ranks' answers to a dry run. Returns the exit code.
int judge_dry_run(const CommandReply& reply, const Console& console);

// The lines of a file that would change, and whether the result is valid. No job is asked.
int dry_run_of_file(const ChangeRequest& request, const Console& console);

}  // namespace gradmon
