// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "tools/benchmarks/crowd/crowd_protocol.h"

namespace gradmon {

// A child process that runs gradmon-bench-crowd. One thread.
class Crowd {
 public:
  // Throws std::system_error.
  explicit Crowd(const CrowdArguments& arguments);
  // Ends the process and waits for its end.
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // The next report; throws std::runtime_error if there is none within 60 s.
  CrowdReport next();

 private:
  pid_t process_ = -1;
  int write_end_ = -1;
  int read_end_ = -1;
  std::string read_;  // but not yet returned by next()
};

}  // namespace gradmon
