// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/gradmonctl/watch_command.h"

namespace gradmon {

// The job behind an endpoint, with the real network, clock and files. Where its
// broadcasts are is found in gradmon.json of the output directory; where it is
// not there, beside a Unix socket; else it is asked each time. From the first
// call of `interrupted` on, SIGINT no longer ends this process. Throws
// std::runtime_error as CommandClient does.
LiveJob live_job(const JobPlace& place, const std::string& endpoint, AskJob ask);

}  // namespace gradmon
