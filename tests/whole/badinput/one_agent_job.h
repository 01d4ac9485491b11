// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "control/link/agent.h"
#include "control/wire/command.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {

// A job whose config is off, and whose rank 0 is an Agent in this process, in its first
// step. The agent starts the hub, and logs the lines that the hub sends it.
class OneAgentJob {
 public:
  struct Options {
    int world_size = 1;
    std::int64_t matches = 1;  // targets that match on rank 0, for every plan
    std::string endpoint;      // the hub's on loopback TCP, without keys; "": none
  };

  OneAgentJob() : OneAgentJob(Options{}) {}
  explicit OneAgentJob(const Options& options);
  // Kills the hub, which would otherwise run for another second.
  ~OneAgentJob();
  OneAgentJob(const OneAgentJob&) = delete;
  OneAgentJob& operator=(const OneAgentJob&) = delete;

  // Rank 0 begins this step, as soon as the gate allows it.
  void begin(Step step);

  const std::string& launch_id() const { return options_.launch_id; }
  const std::filesystem::path& output_dir() const { return options_.output_dir; }
  std::filesystem::path socket() const;  // of the hub
  CommandReply ask(const Command& command) const;
  Status ask() const;
  // Waits for a warning in the status that begins so; empty if none comes.
  std::string warning(const std::string& begins) const;

 private:
  const TemporaryDirectory directory_;
  AgentOptions options_;
  StepGate gate_{Step{0}};
  std::optional<Agent> agent_;
};

}  // namespace gradmon
