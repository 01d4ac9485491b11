// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_selector.h"
#include "tools/gradmonctl/ask/live_job.h"

namespace gradmon {

struct AlertsRequest {
  JobSelector selector;
  bool json = false;
  bool all = false;     // also print every alert and whole lines in a terminal
  bool follow = false;  // and go on with new ones
  std::optional<std::int64_t> rank = {};
};

// gradmonctl alerts: prints the alerts that the lead hub keeps. Returns the exit code.
int alerts_command(const AlertsRequest& request, const AskJob& ask, const Console& console);

// gradmonctl alerts --follow: prints one line for each alert, the newest kept ones first (as many as one
// answer holds), then each new one. Asks once a second, and at once again after an answer with alerts.
// Returns the exit code: 0 when the job has ended (its hub is gone in two looks in a row), the user
// interrupts, or `console.out` fails; 4 when the job does not answer and may still run elsewhere.
int follow_alerts(const AlertsRequest& request, const LiveJob& job, const Console& console);

}  // namespace gradmon
