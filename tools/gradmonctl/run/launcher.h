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

// Runs the command once for each rank on this host and waits for all ranks. Copies whole lines of the ranks
// to stdout and stderr as "[RANK] line", in the order of arrival. Forwards SIGINT, SIGQUIT, SIGTERM and
// SIGHUP to the processes of all ranks, which get none from the terminal; then waits at most one second for a
// blocked stdout. If a rank fails, terminates the others. When all ranks have ended, terminates the processes
// that they left behind. If this process is killed, the kernel kills the command of each rank, but not the
// processes that the command started: a training below a wrapper script runs on, unless the script starts it
// by exec.
//
// Returns the exit code: 0 if all ranks exited with 0, else the exit code of the rank that
// failed first, or 128 + signal if it was killed. The error: a rank could not be started;
// no rank is left running.
//
// Call it once, in a process with one thread that ignores SIGPIPE. It makes the process a
// child subreaper, and reads the signals of the process until it returns.
tl::expected<int, std::string> launch(const Launch& launch);

}  // namespace gradmon
