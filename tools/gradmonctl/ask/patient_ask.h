// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/ask/job.h"

namespace gradmon {

// Wraps `ask`. As long as a hub answers with CommandOutcome::no_lead, as one that was restarted does until
// its ranks are back, the same command is sent again, until the time is over. The error is then the hub's
// message.
AskJob patient_ask(AskJob ask, CommandClock clock);

}  // namespace gradmon
