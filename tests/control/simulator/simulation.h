// SPDX-License-Identifier: Apache-2.0
// A whole job and its environment in one thread: the real coordinator, members,
// gates and leases, driven by a virtual clock. The same script gives the same
// history, to the last message.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/control/simulator/dice.h"
#include "tests/control/simulator/process.h"
#include "tests/control/simulator/rows.h"
#include "tests/control/simulator/script.h"
#include "tests/control/simulator/timeline.h"

namespace gradmon {

struct Outcome {
  std::string failure;         // the first broken promise; "": none
  std::uint64_t digest = 0;    // of the messages read and the steps begun
  std::uint64_t switches = 0;  // plans that came into force
  std::uint64_t commits = 0;
  std::uint64_t lapses = 0;
  std::uint64_t budgets = 0;       // commits that the budget proposed
  std::uint64_t captures = 0;      // commits that an alert proposed
  std::uint64_t returns = 0;       // commits that bring back the plan before a capture
  std::uint64_t coordinators = 0;  // started
  std::uint64_t steps = 0;         // of all ranks
  std::uint64_t messages = 0;
};

class Simulation {
 public:
  explicit Simulation(Script script);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Calls the listener with one line for each event.
  void trace(std::function<void(const std::string&)> listener) { trace_ = std::move(listener); }
  Outcome run();

 private:
  static constexpr Instant kBusyTurn{10'000};
  static constexpr Instant kIdleTurn{100'000};

  // --- The world. ---
  void handle(const Event& event);
  void run_until_settled();
  Process& spawn(Rank rank, Step start);
  void end_process(Process& process);
  void crash(Process& process);
  void begin_incident(const Incident& incident, std::uint32_t index);
  void begin_on_rank(Process& process, const Incident& incident, std::uint32_t index);
  void end_incident(const Incident& incident, std::uint32_t index);
  void hold(Process& process, Incident::Kind kind, int by);
  void resume(Process& process);
  void propose(const Incident& incident);
  void propose_file();
  void capture(const Incident& incident);
  PlanPtr plan_of(const Incident& incident);
  tl::expected<std::int64_t, std::string> can_carry_out(Rank rank, const Plan& plan) const;
  Process* living_process(std::int64_t rank);  // null: none
  Step furthest() const;

  // --- The coordinator. ---
  void start_hub(bool with_log);
  void kill_hub();
  void hub_turn();
  void wake_hub(Instant at);
  void hub_reads(std::uint32_t message);
  void resume_hub();
  void perform(CoordinatorActions actions);
  void post_down(const Outgoing& outgoing);
  bool hub_runs() const { return hub_.alive && hub_.stopped == 0; }

  // --- Agents. ---
  void deliver(Process& process, std::uint32_t message);
  void read(Process& process, std::uint32_t message);
  void turn(Process& process);
  void update_connection(Process& process);
  void wake(Process& process, Instant at);
  void report(Process& process);
  void try_to_exit(Process& process);
  void perform(Process& process, MemberActions actions);
  void note_sent(Process& process, const Envelope& envelope);
  void note_received(Process& process, const Envelope& envelope);
  void note_verdict(Process& process, const KnownDecisions& last, const std::string& epoch);
  void post_up(Process& process, Envelope envelope);
  void send(Process& member, bool up, Envelope envelope);
  std::uint32_t store(Envelope envelope);

  // --- Trainers. ---
  void reach_boundary(Process& process);
  void try_step(Process& process);
  void begin_leaving(Process& process);
  void end_step(Process& process);
  void swap(Process& process, const Commitment& commitment, Step step);
  void on_step_begun(Process& process, Step step, bool collects);
  void schedule_boundary(Process& process);
  void join_collective(Process& process);
  void complete_collective();
  void overtake_agent(Process& process);  // between two accesses of its gate

  // --- The checks. ---
  Ticks clock() const { return std::chrono::floor<Ticks>(now_); }
  EpochRecord& epoch_record() { return epochs_[hub_.epoch]; }
  void check_sent(const Message& message);
  void check_known_decisions(const KnownDecisions& last);
  void check_decided();
  void check_return(const EpochRecord& record, const Verdict& commit);
  void check_promise(Process& process, Step step);
  void check_wait(const Process& process);
  void check_row(Process& process, const Process::Collecting& row);
  void check_hub();
  void check_schedule(const Process& process, Step step, bool collects);
  void check_write_back(const CoordinatorActions& actions);
  void note_dropped();
  void note_unknown(int rank, const std::string& known);
  std::string why_not_settled();
  std::string changes_without_end() const;
  bool settled_but_for_busy() const;
  bool on_everywhere(
      const std::string& request_id);  // the newest commit is this change, in force on all ranks
  bool progressing_to_end();           // some rank steps and is not past the end of the newest commit
  void fail(const std::string& what);
  void trace_line(const std::string& line) const;
  void trace_message(const std::string& to, const Envelope& envelope) const;
  void add_to_digest(std::uint64_t value) { digest_ = (digest_ ^ value) * 0x100000001b3u; }

  const Script script_;
  Dice dice_;
  Timeline timeline_;
  Instant now_{};
  std::int64_t lose_ = 0;   // per mille
  std::int64_t twice_ = 0;  // per mille
  std::int64_t delay_ = 0;  // ms
  std::deque<Process> processes_;
  std::vector<Process*> newest_processes_;  // by rank: the newest process that is no twin; null: none yet
  std::vector<int> process_counts_;         // by rank: processes so far
  Hub hub_;
  Instant hub_turn_at_{};
  // A coupled job: how many ranks have begun the present step, and how many must.
  int ranks_in_step_ = 0;
  int coupled_ranks_ = 0;
  PlanPtr file_;                              // the plan in the user's file; null: none so far
  std::vector<Incident> proposals_;           // a plan's FileIdentity::mtime_ns is the index
  std::map<std::string, Incident> captures_;  // by Plan::config_sha256
  std::vector<std::string> changes_;          // request ids given to the present coordinator
  struct OffAsked {
    std::string request_id;
    Ticks at;  // Hub::ticked when it was asked
  };
  std::optional<OffAsked> off_asked_;
  std::map<std::string, std::optional<Instant>> evicted_;  // process to when; none: not logged, may return
  std::vector<Envelope> messages_;
  std::vector<std::uint32_t> free_messages_;
  std::map<std::string, EpochRecord> epochs_;
  Rows rows_;
  Process* running_agent_ = nullptr;  // the process whose agent runs now; null: none
  std::uint64_t events_ = 0;          // handled so far
  std::uint64_t digest_ = 0xcbf29ce484222325u;
  std::string failure_;
  Outcome outcome_;
  std::function<void(const std::string&)> trace_;
};

// Runs the history of a script.
Outcome simulate(const Script& script);

}  // namespace gradmon
