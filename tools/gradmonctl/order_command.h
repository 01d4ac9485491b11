// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/command_line.h"
#include "tools/gradmonctl/job.h"

namespace gradmon {

// gradmonctl cancel and evict: the job is asked once, and its answer is said on
// `console.err`. Returns the exit code.
int order_command(const OrderRequest& request, const AskJob& ask, const Console& console);

}  // namespace gradmon
