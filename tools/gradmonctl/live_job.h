// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/watch_command.h"

namespace gradmon {

// The job behind an endpoint, with the real network, clock and files; it is asked
// each time. From the first call of `interrupted` on, SIGINT no longer ends this
// process.
LiveJob live_job(const std::string& endpoint, AskJob ask);

}  // namespace gradmon
