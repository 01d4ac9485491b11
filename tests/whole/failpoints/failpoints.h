// SPDX-License-Identifier: Apache-2.0
// Runs a program with failpoint_calls.cc preloaded: chosen calls on files below one
// directory fail, or stop or kill the program.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradmon {

struct FailpointRun {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::filesystem::path below;  // absolute; calls on files below it are counted from 1
  // Up to eight, separated by ";": "7 EIO" (the seventh call fails), "7+ EIO" (and all
  // later ones), "7-9 EIO" (the seventh to the ninth), "fsync:2 ENOSPC" (the second fsync), "7 stop", "9
  // kill".
  std::string points;
  // Appended, one line for each call: "7 fsync:2 /the/path"; then " failed", or " stopped" for stop and kill.
  std::filesystem::path call_log;
  std::filesystem::path output;  // appended: the output of the program
};

// A running program. The destructor kills it.
class FailpointProcess {
 public:
  explicit FailpointProcess(const FailpointRun& run);
  ~FailpointProcess();
  FailpointProcess(const FailpointProcess&) = delete;
  FailpointProcess& operator=(const FailpointProcess&) = delete;

  // killed: by SIGKILL. crashed: by another signal; SIGALRM ends a program that hangs after a minute.
  enum class State { stopped, exited, killed, crashed };
  // Waits until the program stops or ends.
  State wait();
  void resume();
  pid_t pid() const { return pid_; }
  int exit_code() const { return code_; }  // or 128 + signal

 private:
  const pid_t pid_;
  bool ended_ = false;
  int code_ = -1;
};

// The lines of FailpointRun::call_log.
std::vector<std::string> read_lines(const std::filesystem::path& file);
// build/PRESET/bin/NAME
std::string test_program(const std::string& name);

}  // namespace gradmon
