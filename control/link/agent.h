// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "control/agree/journal.h"
#include "control/agree/member.h"
#include "control/alerts/alert_report.h"
#include "control/host/environment.h"
#include "control/link/launch_id_search.h"
#include "control/aliases.h"
#include "control/wire/command.h"
#include "control/wire/messages.h"

namespace gradmon {

// Puts the note `own` into training's store for the hubs of other hosts ("": puts nothing) and returns
// the notes of those hubs. May take seconds: never call it on the training thread.
using RendezvousExchange =
    std::function<Result<std::vector<std::string>>(const std::string& launch_id, const std::string& own)>;

enum class Mode : std::uint8_t { static_once, dynamic };

// This rank's place in its job. Constant. `launch_id` is the same on all ranks of one launch; "" if unknown.
// The agent fills in `lead_job` and `has_store`.
struct AgentOptions : Introduction {
  AskForLaunchId ask_for_launch_id;  // null: the id is known, or has no source
  std::string launch_id_error;       // the reason why the id is unknown
  Mode mode = Mode::dynamic;
  LeadJob lead;                       // sent by rank 0 only
  RendezvousExchange exchange_notes;  // null: no store
  Step start_iteration;
  EnvironmentLookup environment = process_environment;  // for the job's directory and the hub's program
};

// The gate of a rank, which its training thread and its agent share. The training thread waits for other
// ranks only here.
class SharedGate final : public StepGate {
 public:
  using Clock = std::function<Ticks()>;

  using StepGate::StepGate;

  // Training thread, after try_begin returned false: calls begin(n) until it need not wait. Between slices of
  // at most 100 ms it calls `interrupted`; if that returns true, the rank lapses and the step may begin.
  Opening begin_or_wait(Step n, const Clock& clock, const std::function<bool()>& interrupted);

 private:
  void lock() const override { mutex_.lock(); }
  void unlock() const override { mutex_.unlock(); }
  void notify() override;

  mutable std::mutex mutex_;  // also guards StepGate
  std::condition_variable changed_;
  std::uint64_t changes_ = 0;  // guarded by mutex_
};

// The agent's questions to its rank. Called on the agent thread; must return at once.
struct AgentCalls {
  CanCarryOut can_carry_out;
  std::function<CollectingReport()> report;
  ListTargets list_targets = {};                // null: this rank lists no targets
  std::function<void(AlertReport)> raise = {};  // takes alerts found by the lead hub; null: drops them
};

class AgentLoop;
class AlertOutbox;
class ReplicaOutbox;
struct AgentView;
class Mailbox;

// The control thread of a rank. It answers the hub independently of the training thread. It never takes
// Python's GIL and does no file I/O; calls that can hang run in the hub, or as a BackgroundCall.
class Agent {
 public:
  // `gate` and the objects that `calls` refer to must outlive the agent. Throws std::system_error if no
  // thread can be started.
  Agent(AgentOptions options, SharedGate& gate, AgentCalls calls);
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

  // Any thread. The identity of the job; nullopt until the lead hub has answered. The function may outlive
  // the agent.
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
