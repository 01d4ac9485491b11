// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "control/net/agent.h"
#include "control/net/command.h"
#include "tests/temporary_directory.h"

namespace gradmon {

// Rank 0 in its first step, with a config that is off; the only rank of its
// process, and of its job where `from` says nothing else.
class LoneRank {
 public:
  explicit LoneRank(const AgentOptions& from = {}, std::int64_t matches = 1);

  // Its trainer goes on to this step, where the gate lets it.
  void begin(Step step);

  const std::string& launcher_id() const { return options_.launcher_id; }
  std::string endpoint() const;
  CommandReply ask(const Command& command) const;
  Status ask() const;
  // What this process knows without asking.
  Status status() const { return agent_->status(); }
  // The first warning of its status that begins so, once there is one.
  std::string warning(const std::string& begins) const;

 private:
  const TemporaryDirectory directory_;
  AgentOptions options_;
  StepGate gate_{Step{0}};
  std::optional<Agent> agent_;
};

}  // namespace gradmon
