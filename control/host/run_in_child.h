// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace gradmon {

// Runs `work` in a forked child process and returns its result. Returns nullopt if the child does not finish
// within `at_most`, cannot be started, or throws anything. For file system calls that may hang: SIGKILL
// cannot end such a call, and a thread that hangs in it would keep this process from ending. The child closes
// the standard streams. Only for a process with one thread.
std::optional<std::string> run_in_child(const std::function<std::string()>& work,
                                        std::chrono::milliseconds at_most);

// Kills the child and reaps it. Waits at most 200 ms: a child that hangs in a file system call dies only when
// that call returns, and init reaps it when this process has ended. Any thread.
void end_child(pid_t child);

}  // namespace gradmon
