// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace gradmon {

// gradmonctl as a user runs it. Killed, where it still runs, with this object.
class GradmonctlProcess {
 public:
  // `environment`: NAME=VALUE, in addition to this process's own. `user`: as whom it
  // runs, where this process is root's.
  explicit GradmonctlProcess(const std::vector<std::string>& arguments,
                             const std::vector<std::string>& environment = {},
                             std::optional<uid_t> user = {});
  ~GradmonctlProcess();
  GradmonctlProcess(const GradmonctlProcess&) = delete;
  GradmonctlProcess& operator=(const GradmonctlProcess&) = delete;

  pid_t pid() const { return pid_; }
  int wait();  // its exit code, 128 + signal where it was killed
  std::string out() const { return read_text(scratch_ / "out"); }
  std::string err() const { return read_text(scratch_ / "err"); }

 private:
  TemporaryDirectory scratch_;
  pid_t pid_ = -1;
};

}  // namespace gradmon
