// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>
#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_place.h"

namespace gradmon {

// Live; or as a dry run, of the job's config with `edits`, or of `file` with them.
struct TargetsRequest {
  JobPlace place;
  bool json = false;
  bool dry_run = false;
  std::vector<std::pair<std::string, std::string>> edits;
  std::string file;
  bool all = false;  // in a terminal, too: the whole list, and whole lines
};

// gradmonctl targets: what each rank watches, what matches nothing, and what has
// not fired. As a dry run: what each rank would watch under another config, and
// nothing changes; the exit code is then that of `set --dry-run`. 7 where a rank
// does not answer.
int targets_command(const TargetsRequest& request, const AskJob& ask, const Console& console);

}  // namespace gradmon
