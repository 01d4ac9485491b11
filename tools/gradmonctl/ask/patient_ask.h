// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/ask/job.h"

namespace gradmon {

// Wraps `ask`. While a hub answers with CommandOutcome::no_lead, as a restarted hub does until its ranks are
// back, sends the same command again, until the time is over. The error is then the hub's message.
AskJob patient_ask(AskJob ask, CommandClock clock);

}  // namespace gradmon
