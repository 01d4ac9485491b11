// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/files/descriptor.h"
#include "control/aliases.h"

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

// Arguments or an environment for execve(2): a pointer to each text, then null. Valid as long as `texts`.
inline std::vector<char*> exec_pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// How spawn() starts a program: with the default signals, none masked, and no descriptor of this process
// except `input`.
struct SpawnOptions {
  int input = -1;            // becomes the standard input; -1: /dev/null, as for the other standard streams
  bool new_session = false;  // setsid(2)
};
// posix_spawn(3). `argv` and `envp`: see exec_pointers(). Returns an errno; 0: `pid` runs.
int spawn(const std::string& program, const std::vector<char*>& argv, char* const* envp,
          const SpawnOptions& options, pid_t& pid);

// A user's program that a daemon starts and does not wait for.
struct LimitedCommand {
  static constexpr std::size_t kMostInput = 60'000;

  std::vector<std::string> arguments;    // the first is the program's absolute path; no shell sees them
  std::vector<std::string> environment;  // NAME=VALUE, the whole environment
  std::string input;                     // its standard input; at most kMostInput bytes
  std::chrono::milliseconds time_limit{30'000};
};

// The running command. A helper process, forked from this one, starts the program in a session of its own,
// with /dev/null for output, the default signals, and none of this process's descriptors, and waits for its
// end. When it ends, or at the time limit, the helper kills the rest of its process group. The limit holds
// even if this process ends first. One thread; other threads of the process may exist.
class LimitedProcess {
 public:
  static Result<LimitedProcess> start(const LimitedCommand& command);

  // nullopt while it runs. Once it has ended: "" if its exit status was 0, or a text such as "exited with
  // status 3", "was killed by signal 9", "ran longer than 30 s and was killed", "could not be started: ...".
  // Do not call it again after that.
  std::optional<std::string> poll();

 private:
  LimitedProcess(pid_t helper, Descriptor result, std::chrono::milliseconds time_limit)
      : helper_(helper), result_(std::move(result)), time_limit_(time_limit) {}

  pid_t helper_;
  Descriptor result_;  // the helper writes the program's end to the other end
  std::chrono::milliseconds time_limit_;
  std::optional<std::string> ended_;  // the program's end, once known
};

// Sets the soft limit of a resource to `most`, or to the hard limit if that is less. Async-signal-safe.
inline void set_soft_limit(decltype(RLIMIT_AS) resource, rlim_t most) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, most);
  ::setrlimit(resource, &limit);
}

std::string host_name();
// The kernel's start time of a process, in clock ticks since boot; 0 if no such process runs. Pid and
// start time together identify a process; a pid alone may be reused.
std::uint64_t process_start_ticks(std::int64_t pid);
// `bytes` random bytes of libsodium, as lower-case hex digits.
std::string random_hex(std::size_t bytes);
// Wall-clock milliseconds since 1970.
std::int64_t wall_now();
// CLOCK_BOOTTIME, which also runs while the machine is suspended. Leases and waits use it. Any thread.
std::chrono::milliseconds boot_now();

}  // namespace gradmon
