// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "control/agree/journal.h"

namespace gradmon {

// What the hubs of this user on this host say of their jobs.
struct HubSurvey {
  struct Answer {
    std::string endpoint;
    Status status;
  };
  std::vector<Answer> answers;
  std::vector<std::string> silent;  // sentences: whose socket is held, and nobody answers
};

// Asks all of them at the same time. A hub has 3 s to answer, 1 s once a job is known
// that is `wanted`; one that is being started again has 1 s to come back where none is.
HubSurvey ask_all_hubs(const std::function<bool(const Status&)>& wanted);

}  // namespace gradmon
