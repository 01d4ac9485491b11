// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradmon {

struct Launch {
  int ranks = 1;
  std::vector<std::string> command;       // at least one word; looked up in PATH
  std::chrono::milliseconds grace{5000};  // from SIGTERM to SIGKILL
};

// Runs the command once for each rank on this host and waits for all. Their
// lines go to stdout and stderr as "[RANK] line", whole, in the order in which
// they arrive. SIGINT, SIGTERM and SIGHUP are passed on to all of them. When
// one fails the others are ended; what ranks leave running behind is ended at
// last. Should this process die, the kernel kills the ranks.
//
// The value is the exit code: 0 where all ranks ended with 0, else that of the
// rank that failed first, 128 + signal where it was killed. The error is that
// the ranks could not be started; then none is left.
//
// To be called once, in a process with one thread that ignores SIGPIPE: it
// makes the process a child subreaper and, until it returns, reads its signals.
tl::expected<int, std::string> launch(const Launch& launch);

}  // namespace gradmon
