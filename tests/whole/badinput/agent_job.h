// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "control/link/agent.h"
#include "control/wire/command.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {

// A job whose rank 0 is an agent of this process, in its first step, with a config
// that is off, and with the hub that this agent starts. The hub's log is rank 0's
// to tell.
class AgentJob {
 public:
  struct Options {
    int world_size = 1;
    std::int64_t matches = 1;  // targets that a plan means on rank 0
    std::string endpoint;      // of TCP on loopback, without keys; "": none
  };

  AgentJob() : AgentJob(Options{}) {}
  explicit AgentJob(const Options& options);
  // Kills the hub: it would live for a second more.
  ~AgentJob();
  AgentJob(const AgentJob&) = delete;
  AgentJob& operator=(const AgentJob&) = delete;

  // Its trainer goes on to this step, where the gate lets it.
  void begin(Step step);

  const std::string& launch_id() const { return options_.launch_id; }
  const std::filesystem::path& output_dir() const { return options_.output_dir; }
  std::filesystem::path socket() const;  // of the hub
  CommandReply ask(const Command& command) const;
  Status ask() const;
  // The first warning of its status that begins so, once there is one.
  std::string warning(const std::string& begins) const;

 private:
  const TemporaryDirectory directory_;
  AgentOptions options_;
  StepGate gate_{Step{0}};
  std::optional<Agent> agent_;
};

}  // namespace gradmon
