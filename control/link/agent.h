// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "control/link/agent_options.h"
#include "control/wire/command.h"

namespace gradmon {

class AgentLoop;
class AlertOutbox;
class ReplicaOutbox;
class AgentView;
class Mailbox;

// The control thread of a rank. It answers the hub independently of the training thread. It never takes
// Python's GIL and does no file I/O; calls that can hang run in the hub, or as a BackgroundCall.
class Agent {
 public:
  // `gate` and the objects that `calls` refer to must outlive the agent. Throws std::system_error if no
  // thread can be started.
  Agent(AgentOptions options, StepGate& gate, AgentCalls calls);
  // Calls stop() if the caller has not.
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Training thread: the first step is about to begin. The agent sends Hello. In dynamic mode the second
  // step waits for the answer, at most 2 s.
  void start();
  // Training thread: a plan came into force at this boundary.
  void plan_swapped() noexcept;
  // Any thread: all rows of a finished revision are on disk.
  void rows_on_disk(Revision revision);
  // Any thread: sends a command to the job, as gradmonctl does. A refusal is logged.
  void submit(Command command);
  // Any thread. Takes the alerts of this rank for the lead hub, and may outlive the agent.
  std::shared_ptr<AlertOutbox> alert_outbox() const { return alerts_; }
  // Any thread. Takes rows that other ranks should hold as well, for the lead hub. May outlive the agent.
  std::shared_ptr<ReplicaOutbox> replica_outbox() const { return replicas_; }
  // Training thread: reports that `last` was the last step and joins the thread. Waits at most `at_most`
  // for the acknowledgement. Further calls do nothing.
  void stop(Step last, std::chrono::milliseconds at_most = std::chrono::milliseconds{500}) noexcept;

  // Any thread. nullopt until the lead hub has answered.
  std::optional<JobIdentity> job() const;
  // Any thread. Returns a function like job() that may outlive the agent.
  std::function<std::optional<JobIdentity>()> job_lookup() const;
  // Any thread. On rank 0 the status of the whole job, normally at most 1 s old, never more than 3 s. Without
  // a status from the hub, and on other ranks, the status of this rank. After stop(): "off", "stopped".
  Status status() const;

 private:
  StepGate& gate_;  // own synchronisation
  // Constant after construction.
  const Step start_iteration_;
  const bool holds_start_;
  const std::shared_ptr<Mailbox> mailbox_;         // own synchronisation
  const std::shared_ptr<AgentView> view_;          // own synchronisation
  const std::shared_ptr<AlertOutbox> alerts_;      // own synchronisation
  const std::shared_ptr<ReplicaOutbox> replicas_;  // own synchronisation
  const std::unique_ptr<AgentLoop> loop_;          // used by the agent thread only, while it runs
  // Keep last: the thread uses the other members.
  std::thread thread_;
};

}  // namespace gradmon
