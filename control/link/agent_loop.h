// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/agree/member.h"
#include "control/host/mailbox.h"
#include "control/host/rate_limits.h"
#include "control/link/agent.h"
#include "control/link/background_call.h"
#include "control/link/hub_connection.h"
#include "control/link/launch_id_search.h"
#include "control/link/report_outbox.h"
#include "control/step.h"
#include "control/wire/command.h"

namespace gradmon {

// The mean duration of the last steps. One thread; the caller passes the time.
class StepPace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  StepPace(Step current, Time now) : step_(current), since_(now), last_(current) {}

  // Call it often. Measures whole steps, over at least half a second.
  void look(Step current, Time now) {
    const bool begins = current != last_;
    last_ = current;
    const std::int64_t steps = current - step_;
    if (!begins || steps <= 0 || now - since_ < kMeasureOver) return;
    step_ms_ = std::chrono::duration<double, std::milli>(now - since_).count() / static_cast<double>(steps);
    step_ = current;
    since_ = now;
  }
  // 0 until a step has ended.
  double step_ms() const { return step_ms_; }

 private:
  static constexpr std::chrono::milliseconds kMeasureOver{500};

  Step step_;   // at `since_`
  Time since_;  // the last measurement
  Step last_;   // at the last look
  double step_ms_ = 0;
};

// The commands that this rank's program has given to the job. Each is sent again every second until the
// lead hub answers. Agent thread only.
class PendingCommands {
 public:
  using Clock = std::chrono::steady_clock;

  // Keeps at most 100 commands: a further command drops the oldest and logs it.
  void add(Command command, Clock::time_point now);
  // Logs and drops the commands without an answer 60 s after add().
  void drop_expired(Clock::time_point now);
  // Returns the commands to send now.
  std::vector<Command> due(Clock::time_point now);
  // Removes the command. Logs a refusal, and any message of a reply to a command that was carried out.
  void answered(const std::string& request_id, const CommandReply& reply);

 private:
  struct Waiting {
    Command command;
    Clock::time_point added;
    Clock::time_point next;  // the time to send it again
  };
  std::vector<Waiting> waiting_;
};

// The state that the agent thread gives to other threads.
struct AgentView {
  Published<Status> status;
  Published<std::optional<JobIdentity>> job;
};

// The body of the agent thread: carries messages between this rank's member and the hub of its host. All
// calls on the agent thread, except the constructor, end_now() and publish_stopped().
class AgentLoop {
 public:
  static constexpr Ticks kStartWait{2'000};

  AgentLoop(AgentOptions options, StepGate& gate, AgentCalls calls, std::shared_ptr<Mailbox> mailbox,
            AgentView& view, std::shared_ptr<AlertOutbox> alerts, std::shared_ptr<ReplicaOutbox> replicas);
  ~AgentLoop();
  AgentLoop(const AgentLoop&) = delete;
  AgentLoop& operator=(const AgentLoop&) = delete;

  // Runs until begin_leaving() was called and its message is acknowledged, its time is up, or the connection
  // is lost. After an exception, logs the cause, drops promise and lease at the gate and returns. Then closes
  // the mailbox.
  void run() noexcept;

  // Run from the mailbox; Agent describes them.
  void start();
  void rows_on_disk(Revision revision);
  void submit(Command command);  // sets `by`
  void begin_leaving(Step last, std::chrono::milliseconds at_most);

  // Training thread: run() returns without a message to the hub. Allocates nothing.
  void end_now() noexcept;
  // Training thread, after run() has returned: publishes the state "off" with the rank's final counts.
  void publish_stopped() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  void poll_until_done();
  void fail(const char* cause) noexcept;
  static std::chrono::milliseconds until_next(std::chrono::milliseconds turn);
  void run_once();
  void maintain_connection();
  void look_for_launch_id();
  void end_lease();
  void introduce();
  void on_store_notes(const std::string& own);
  void answer_store_notes();
  void on_frame(std::string&& bytes);
  void on_bundle(Bundle bundle);
  void to_coordinator(Message message);
  void perform(MemberActions actions);
  void tell_applied();
  void send_due_commands();
  void on_alert_message(const Bundle& bundle);
  void send_reports();  // alerts and digests
  void report_soon();
  void report_progress(Clock::time_point now);
  void warn_where_start_waits();
  CollectingReport report() const;
  void tell_progress(CollectingReport report);
  Status own_status(const CollectingReport& report) const;
  bool may_exit() const;

  // Constant after construction.
  const AgentOptions options_;
  StepGate& gate_;
  const AgentCalls calls_;
  const std::shared_ptr<Mailbox> mailbox_;
  AgentView& view_;
  const std::shared_ptr<AlertOutbox> alerts_;
  const std::shared_ptr<ReplicaOutbox> replicas_;
  const std::string process_id_;
  const HubConnection::Settings hub_settings_;

  std::atomic<bool> ends_now_{false};
  std::string launch_id_;                   // "" until it is known
  std::unique_ptr<LaunchIdSearch> search_;  // null: the id is known, or has no source
  std::unique_ptr<HubConnection> hub_;      // null until the launch id is known
  BackgroundCall<std::vector<std::string>> notes_;
  std::string lead_error_;  // the reason why this host's hub cannot reach the lead hub, or ""
  Member member_;
  std::string epoch_;  // "" until the lead hub has answered
  PendingCommands pending_commands_;
  LogLimiter off_lines_;
  bool hub_takes_alerts_ = false;    // the hubs on the way to the lead understand AlertReport
  bool hub_takes_replicas_ = false;  // they understand ReplicaDigests
  bool started_ = false;
  bool start_wait_logged_ = false;
  std::optional<Clock::time_point> leave_by_;
  std::optional<Ticks> started_at_;
  Clock::time_point last_progress_;
  Clock::time_point last_publish_;
  std::optional<Clock::time_point> job_status_at_;  // rank 0: time of the job's last status
  StepPace pace_;
};

}  // namespace gradmon
