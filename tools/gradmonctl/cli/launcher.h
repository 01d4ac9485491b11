// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "control/aliases.h"

namespace gradmon {

// Turns the output of a rank, in pieces of any size, into whole lines that begin with
// "[RANK] ". A value; does no I/O.
class LinePrefixer {
 public:
  // Cuts a longer line into lines of this many bytes: memory is bounded.
  static constexpr std::size_t kLongestLine = 64 * 1024;

  explicit LinePrefixer(int rank) : prefix_("[" + std::to_string(rank) + "] ") {}

  // The lines that `bytes` completes, prefixed, each with its line feed.
  std::string feed(std::string_view bytes);
  // The unfinished last line at the end of the output, with a line feed; "" if none.
  std::string finish();

 private:
  std::string prefix_;   // Constant after construction.
  std::string pending_;  // The beginning of a line.
};

// The values that all ranks of one launch share.
struct LaunchIdentity {
  int ranks = 1;
  int master_port = 0;
  std::string run_id;  // GRADMON_RUN_ID: 32 hex digits
};

// A TCP port that was free on 127.0.0.1 a moment ago, if possible outside the range that the system assigns
// for port 0: rank 0 binds it only seconds later.
Result<int> free_port();

// The environment of one rank, as "NAME=VALUE": `inherited` with RANK,
// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
// GRADMON_RUN_ID replaced, and USE_LIBUV=0 and DYNAMIC_MONITOR=True if they are not set.
std::vector<std::string> rank_environment(const std::vector<std::string>& inherited, int rank,
                                          const LaunchIdentity& launch);

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
Result<int> launch(const Launch& launch);

}  // namespace gradmon
