// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "control/files/descriptor.h"
#include "tests/benchmarks/simulated_hubs/simulated_hubs_protocol.h"

namespace gradmon {

// A child process that runs gradmon-bench-simulated-hubs. One thread.
class SimulatedHubsProcess {
 public:
  // Throws std::system_error.
  explicit SimulatedHubsProcess(const SimulatedHubsArguments& arguments);
  // Ends the process and waits for its end.
  ~SimulatedHubsProcess();
  SimulatedHubsProcess(const SimulatedHubsProcess&) = delete;
  SimulatedHubsProcess& operator=(const SimulatedHubsProcess&) = delete;

  // The next report; throws std::runtime_error if there is none within 60 s.
  SimulatedHubsReport next();

 private:
  pid_t process_ = -1;
  Descriptor write_end_;
  Descriptor read_end_;
  std::string read_;  // but not yet returned by next()
};

}  // namespace gradmon
