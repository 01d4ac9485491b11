// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>
#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_selector.h"

namespace gradmon {

// The targets of the plan in force; with `dry_run`, the targets of the job's config, or of `file`, with
// `edits`.
struct TargetsRequest {
  JobSelector selector;
  bool json = false;
  bool dry_run = false;
  std::vector<std::pair<std::string, std::string>> edits;
  std::string file;
  bool all = false;  // also print the whole list and whole lines in a terminal
};

// gradmonctl targets: lists the watched series of each rank, the names that match nothing, and the series
// that have not fired. As a dry run, lists the series that each rank would watch under another config,
// changes nothing, and returns the exit code of `set --dry-run`. Otherwise returns 7 if a rank does not
// answer.
int targets_command(const TargetsRequest& request, const AskJob& ask, const Console& console);

}  // namespace gradmon
