// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/ask/job.h"

namespace gradmon {

// Wraps `ask`. A command too large for one message is not sent: the reply is
// CommandOutcome::failed, and its message names both sizes.
AskJob bounded_ask(AskJob ask);

}  // namespace gradmon
