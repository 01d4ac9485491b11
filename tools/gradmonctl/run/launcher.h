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

// Runs the command once for each rank on this host and waits for all ranks. Whole lines
// of the ranks go to stdout and stderr as "[RANK] line", in the order of arrival. SIGINT, SIGQUIT,
// SIGTERM and SIGHUP are forwarded to the processes of all ranks, which get none from the terminal; after
// that a blocked stdout is waited for one second. If a rank fails, the others are terminated. When all ranks
// have ended, the processes that they left behind are terminated. If this process is killed, the kernel kills
// the command of each rank, but not the processes that the command started: a training below a wrapper script
// runs on, unless the script starts it by exec.
//
// Returns the exit code: 0 if all ranks exited with 0, else the exit code of the rank that
// failed first, or 128 + signal if it was killed. The error: a rank could not be started;
// no rank is left running.
//
// Call it once, in a process with one thread that ignores SIGPIPE. It makes the process a
// child subreaper, and reads the signals of the process until it returns.
tl::expected<int, std::string> launch(const Launch& launch);

}  // namespace gradmon
