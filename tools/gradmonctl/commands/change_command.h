// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include "tools/gradmonctl/ask/job.h"
#include "tools/gradmonctl/ask/job_place.h"

namespace gradmon {

// on, off and set. `command` has neither request id nor author yet.
struct ChangeRequest {
  JobPlace place;
  Command command;
  bool wait = false;
  bool dry_run = false;  // set only
  std::string file;      // set as a dry run: edit this file's text, and ask no job; "" otherwise
  std::chrono::seconds timeout{60};
};

// gradmonctl on, off and set. With --wait it asks for the verdict until every
// rank has applied it, and prints the step (nothing where no change was
// needed). Returns the exit code.
int change_command(const ChangeRequest& request, const AskJob& ask, const Pace& pace, const Console& console);

}  // namespace gradmon
