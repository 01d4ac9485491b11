// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "control/agree/journal.h"

namespace gradmon {

// The status replies of this user's hubs on this host.
struct HubReplies {
  struct Answer {
    std::string endpoint;
    Status status;
  };
  std::vector<Answer> answers;
  // Sentences: hubs that accept a connection but do not reply, or give no status and say why.
  std::vector<std::string> unresponsive;
};

// Asks all hubs at the same time. Waits 3 s for replies, but only 1 s once a `wanted` job is found. Until
// one is found, a hub that is being restarted, with or without its socket, has 1 s to come back.
HubReplies query_all_hubs(const std::function<bool(const Status&)>& wanted);

}  // namespace gradmon
