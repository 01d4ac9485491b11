// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "control/agree/member.h"
#include "control/net/agent_options.h"
#include "control/net/bus.h"
#include "control/net/disk_thread.h"
#include "control/net/dropped_messages.h"
#include "control/net/history_file.h"
#include "control/net/job_homes.h"
#include "control/net/mailbox.h"
#include "control/net/own_commands.h"
#include "control/net/rank0_desk.h"

namespace gradmon {

// What the agent thread shows to the others. Own synchronisation.
class AgentView {
 public:
  void show(Status status);
  void show(JobIdentity job);
  Status status() const;
  std::optional<JobIdentity> job() const;

 private:
  mutable std::mutex mutex_;
  Status status_;                   // guarded by mutex_
  std::optional<JobIdentity> job_;  // guarded by mutex_
};

// What the agent thread does: carries letters between this rank's member, the
// coordinator and the network, and verdicts to and from the register. All of
// it on one thread, but for the constructor.
class AgentLoop {
 public:
  AgentLoop(AgentOptions options, StepGate& gate, AgentCalls calls, std::shared_ptr<Mailbox> mailbox,
            AgentView& view);
  ~AgentLoop();
  AgentLoop(const AgentLoop&) = delete;
  AgentLoop& operator=(const AgentLoop&) = delete;

  // Until leave() has been called and been heard, or its time is up. Where it
  // fails it ends, the plan in force runs out, and nobody waits for a verdict.
  void live() noexcept;

  // Notes of the mailbox.
  void start();  // the first step has begun
  void rows_on_disk(Revision revision);
  void ask(Command command);  // its `by` is set here
  void leave(Step last);

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void open_rank0();
  void look_for_rank0();
  void take_messages(std::chrono::milliseconds at_most);
  void take_turn();
  void on_bytes(const Bus::Incoming& incoming);
  void give_up(const std::string& why);
  void drop(const std::string& why);
  void on_command(const Bus::Incoming& incoming, Command command);
  void answer(const std::string& peer, const Command& command, const CommandReply& reply);
  void ask_rank0(Clock::time_point now);
  void to_member(const Letter& letter);
  void to_coordinator(Message message);
  void send_to_rank(const Letter& letter);
  void perform(MemberActions actions);
  void write_verdict(const Verdict& verdict);
  void prove(Home home, const std::string& nonce);
  void on_rank0_found(const JobEntry& job);
  void tell_applied();
  void report_soon();
  void note_switches(const MemberActions& actions);
  void write_notes();
  void report_progress(Clock::time_point now);
  void show_status(const CollectingReport& report, bool broadcast);
  Status own_status(const CollectingReport& report) const;
  bool may_go() const;
  void close();

  // Constant after construction.
  const AgentOptions options_;
  StepGate& gate_;
  const AgentCalls calls_;
  const std::shared_ptr<Mailbox> mailbox_;
  AgentView& view_;
  const std::string process_id_;
  std::string network_trouble_;  // "" where there is a network

  std::unique_ptr<Bus> bus_;  // null: no network
  JobIdentity job_;           // epoch "" until rank 0 has answered
  Member member_;
  std::unique_ptr<Rank0Desk> rank0_;  // rank 0 only
  // Rank 0 only: where each process that said Hello, and each incarnation of a rank, is reached.
  std::map<std::string, std::string> hello_peers_;
  std::map<std::pair<int, std::uint64_t>, std::string> peers_;
  std::deque<Letter> inbox_;  // to this process's own coordinator or member
  DroppedMessages dropped_;
  OwnCommands own_commands_;
  std::uint64_t incarnation_ = 0;
  bool started_ = false;
  std::string tried_epoch_;  // of the rank 0 that was found last; "": none yet
  bool hinted_ = false;
  std::optional<Clock::time_point> leave_by_;
  Clock::time_point last_turn_;
  Clock::time_point last_progress_;
  Clock::time_point last_measured_;
  Clock::time_point last_show_;
  std::vector<SwitchNote> notes_;  // that wait for the name of the run directory
  Step last_step_;
  double step_ms_ = 0;
  std::string socket_endpoint_;  // of a socket directory of our own
  // Keep last: their jobs use the others.
  DiskThread disk_;
  JobHomes homes_;
};

}  // namespace gradmon
