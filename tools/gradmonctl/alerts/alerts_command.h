// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_selector.h"
#include "tools/gradmonctl/ask/live_job.h"

namespace gradmon {

struct AlertsRequest {
  JobSelector selector;
  std::string run = {};  // an output directory, or a rank's directory in it; "": the selector's
  bool json = false;
  bool all = false;     // each alert, and whole lines in a terminal
  bool follow = false;  // then print new ones
  std::optional<std::int64_t> rank = {};
};

using AlertFiles = std::function<tl::expected<std::vector<RankAlert>, std::string>()>;

// gradmonctl alerts: prints the alerts that the lead hub keeps. If the job does not answer, prints the alerts
// in `files`, and says so on `console.err`. Returns the exit code.
int alerts_command(const AlertsRequest& request, const AskJob& ask, const AlertFiles& files,
                   const Console& console);

// gradmonctl alerts --follow: prints one line for each alert, the newest kept ones first (as many as one
// answer holds), then each new one. Asks once a second, and again at once after an answer with alerts.
// Returns the exit code: 0 when the job has ended (its hub is gone in two checks in a row), the user
// interrupts, or `console.out` fails; 4 when the job does not answer and may still run elsewhere.
int follow_alerts(const AlertsRequest& request, const LiveJob& job, const Console& console);

}  // namespace gradmon
