// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_selector.h"

namespace gradmon {

struct HistoryRequest {
  JobSelector selector;
  bool json = false;
  bool all = false;  // also print every change and whole lines in a terminal
};

using HistoryFiles = std::function<tl::expected<std::vector<HistoryEntry>, std::string>()>;

// gradmonctl history: prints the history in the job's answer. If the job does not answer, prints the history
// in `files`, and says so on `console.err`. Returns the exit code.
int history_command(const HistoryRequest& request, const AskJob& ask, const HistoryFiles& files,
                    const Console& console);

}  // namespace gradmon
