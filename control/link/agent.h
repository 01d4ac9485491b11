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
class AgentView;
class Mailbox;

// The one control thread of a rank. It answers for the rank whatever the
// training thread does, never takes Python's GIL, and does no file I/O: all that
// can hang or fail is in the hub.
class Agent {
 public:
  // `gate` and what `calls` refer to outlive the agent. Throws std::system_error
  // where there is no thread to be had.
  Agent(AgentOptions options, StepGate& gate, AgentCalls calls);
  // stop(), where that has not been called.
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Training thread: the first step is about to begin. Says Hello and, in
  // dynamic mode, holds the step after it until that is answered, two seconds at most.
  void start();
  // Training thread: something was put in force at this boundary.
  void boundary_passed() noexcept;
  // Any thread: all rows of a revision that ran to its end are on disk.
  void rows_on_disk(Revision revision);
  // Any thread: asks the job, as gradmonctl would. What is refused is logged.
  void ask(Command command);
  // Training thread, once: says that `last` was the last step; gone within
  // `at_most`, whether that was heard or not.
  void stop(Step last, std::chrono::milliseconds at_most = std::chrono::milliseconds{500}) noexcept;

  // Any thread. None until the lead hub has answered.
  std::optional<JobIdentity> job() const;
  // Any thread. Answers as job() does, also when the agent has gone.
  std::function<std::optional<JobIdentity>()> job_source() const;
  // Any thread: in rank 0 of the whole job, at most a second old, elsewhere of this rank; once
  // stopped, off for that reason.
  Status status() const;

 private:
  StepGate& gate_;  // own synchronisation
  // Constant after construction.
  const Step start_iteration_;
  const bool holds_start_;
  const std::shared_ptr<Mailbox> mailbox_;  // own synchronisation
  const std::shared_ptr<AgentView> view_;   // own synchronisation
  const std::unique_ptr<AgentLoop> loop_;   // the thread's own, once it runs
  // Keep last: it runs on the others.
  std::thread thread_;
};

}  // namespace gradmon
