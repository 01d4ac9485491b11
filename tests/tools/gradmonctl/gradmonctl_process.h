// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace gradmon {

// A gradmonctl process. The destructor kills it if wait() was not called.
class GradmonctlProcess {
 public:
  // `environment`: NAME=VALUE, added to the environment of this process. `user`: the
  // user to run as; needs root.
  explicit GradmonctlProcess(const std::vector<std::string>& arguments,
                             const std::vector<std::string>& environment = {},
                             std::optional<uid_t> user = {});
  ~GradmonctlProcess();
  GradmonctlProcess(const GradmonctlProcess&) = delete;
  GradmonctlProcess& operator=(const GradmonctlProcess&) = delete;

  pid_t pid() const { return pid_; }
  int wait();  // the exit code; 128 + signal if it was killed; throws if called twice
  std::string out() const { return read_text(scratch_ / "out"); }
  std::string err() const { return read_text(scratch_ / "err"); }

 private:
  TemporaryDirectory scratch_;
  pid_t pid_ = -1;
};

struct ProcessResult {
  int code;  // as from GradmonctlProcess::wait()
  std::string out;
  std::string err;
};

// Runs gradmonctl to its end. The parameters are those of GradmonctlProcess.
ProcessResult run_gradmonctl(const std::vector<std::string>& arguments,
                             const std::vector<std::string>& environment = {},
                             std::optional<uid_t> user = {});

// Turns this process, a forked child, into gradmonctl. The parameters are those of GradmonctlProcess.
[[noreturn]] void exec_gradmonctl(const std::vector<std::string>& arguments,
                                  const std::vector<std::string>& environment,
                                  std::optional<uid_t> user = {});

// True if `message` says that the search `which` found no job; for example "named train.py". While any
// hub of this user on this host does not answer, the message says "no job … answered" and names that hub.
inline bool says_no_job(const std::string& message, const std::string& which) {
  return message.find("no live job " + which + " (") != std::string::npos ||
         message.find("no job " + which + " answered:") != std::string::npos;
}

}  // namespace gradmon
