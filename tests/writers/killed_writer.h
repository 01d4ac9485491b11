// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

namespace gradmon {

// Forks a process that calls `write(step)` for the steps 0, 1, 2, … and kills it `later` than so many steps
// are written. Returns the number of steps written, at least `steps`; -1: the process could not be started,
// or `write` returned false.
inline int kill_after(int steps, std::chrono::microseconds later,
                      const std::function<bool(std::int64_t step)>& write) {
  int pipe[2];
  if (::pipe(pipe) != 0) return -1;
  const pid_t child = ::fork();
  if (child < 0) return -1;
  if (child == 0) {
    ::close(pipe[0]);  // If the parent dies, the next write() to the pipe fails and ends the child.
    for (std::int64_t step = 0; write(step) && ::write(pipe[1], "x", 1) == 1; ++step) {
    }
    ::_exit(1);
  }
  ::close(pipe[1]);
  char byte = 0;
  int written = 0;
  while (written < steps && ::read(pipe[0], &byte, 1) == 1) ++written;
  std::this_thread::sleep_for(later);  // Any moment will do: what a test promises holds at all of them.
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  const bool enough = written == steps && WIFSIGNALED(status);
  while (::read(pipe[0], &byte, 1) == 1) ++written;
  ::close(pipe[0]);
  return enough ? written : -1;
}

// How many processes to kill: `full` with GRADMON_TEST_SCALE=full, otherwise `quick`.
inline int kill_count(int quick, int full) {
  const char* const scale = std::getenv("GRADMON_TEST_SCALE");
  return scale != nullptr && std::string(scale) == "full" ? full : quick;
}

}  // namespace gradmon
