// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/ask/job.h"

namespace gradmon {

// `ask`, but a command that does not fit into a message is not sent: it is
// answered here with CommandOutcome::failed, and the message names both sizes.
AskJob bounded_ask(AskJob ask);

}  // namespace gradmon
