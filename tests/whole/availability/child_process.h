// SPDX-License-Identifier: Apache-2.0
// A process that a test starts, with its environment, user and streams. It is killed
// with the object, and when the test dies.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradmon {

struct ProcessOptions {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::filesystem::path output;  // appended: standard output, and standard error if `error` is -1
  int error = -1;                // descriptor for standard error; -1: `output`
  uid_t user = 0;                // 0: the test's user
};

class ChildProcess {
 public:
  explicit ChildProcess(const ProcessOptions& options);
  // SIGKILL, then waits for the end, at most a second.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // The exit code, or 128 + signal; unset if the process has not ended in time.
  std::optional<int> wait(std::chrono::milliseconds at_most);

 private:
  const pid_t pid_;
  std::optional<int> code_;
};

struct ProcessResult {
  int code = -1;  // 124: did not end in time, and was killed
  std::string out;
  std::string err;
  std::chrono::milliseconds took{0};
};
// Runs a program until it ends, or kills it after `at_most`. Sets `output` and `error`.
ProcessResult run_process(ProcessOptions options, std::chrono::milliseconds at_most);

}  // namespace gradmon
