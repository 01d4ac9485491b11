// SPDX-License-Identifier: Apache-2.0
// A program whose calls on files below one directory can be made to fail, or
// to stop or kill it, by a library of ours that is loaded into it.
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
  std::filesystem::path below;  // absolute; the calls on what is here are counted from 1
  // Up to eight, with ";" between them: "7 EIO" (the seventh call fails), "7+ EIO"
  // (and all that follow), "fsync:2 ENOSPC" (the second of its name), "7 stop", "9 kill".
  std::string points;
  std::filesystem::path calls;   // gets a line a call: "7 fsync:2 /the/path", with " failed" if so
  std::filesystem::path output;  // gets what the program prints
};

// A running program. Killed when it goes.
class FailpointProcess {
 public:
  explicit FailpointProcess(const FailpointRun& run);
  ~FailpointProcess();
  FailpointProcess(const FailpointProcess&) = delete;
  FailpointProcess& operator=(const FailpointProcess&) = delete;

  enum class State { stopped, exited, killed };
  // Until it is no longer running; gives up, and kills it, after a minute.
  State wait();
  void go_on();
  int exit_code() const { return code_; }

 private:
  const pid_t pid_;
  bool gone_ = false;
  int code_ = -1;
};

// GRADMON_TEST_SCALE=full
bool full_scale();
// The lines of FailpointRun::calls.
std::vector<std::string> lines_of(const std::filesystem::path& file);
// build/PRESET/bin/NAME
std::string test_program(const std::string& name);

}  // namespace gradmon
