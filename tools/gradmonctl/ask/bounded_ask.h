// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/ask/job.h"

namespace gradmon {

// Wraps `ask`. Does not send a command too large for one message: the reply is CommandOutcome::failed, and
// its message names both sizes.
AskJob bounded_ask(AskJob ask);

}  // namespace gradmon
