// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "control/files/descriptor.h"

namespace gradmon {

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
  static tl::expected<LimitedProcess, std::string> start(const LimitedCommand& command);

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

}  // namespace gradmon
