// SPDX-License-Identifier: Apache-2.0
// A whole job and its environment in one thread: the real coordinator, members,
// gates and leases, driven by a virtual clock. The same script gives the same
// history, to the last message.
#pragma once

#include <map>
#include <queue>

#include "control/agree/coordinator.h"
#include "control/agree/member.h"
#include "control/agree/overhead_budget.h"
#include "control/agree/plan.h"
#include "control/agree/step_gate.h"
#include "tests/control/simulator/script.h"

namespace gradmon {

// Virtual time since a history began.
using Instant = std::chrono::microseconds;

// An event that is due.
struct Event {
  enum class Kind : std::uint8_t {
    turn,
    boundary,
    rank_message,
    rows,
    hub_turn,
    hub_message,
    hub_returns,
    incident,
    incident_ends,
    spawn
  };

  Instant at{};
  std::uint64_t order = 0;  // order of insertion; identifies a boundary
  Kind kind = Kind::turn;
  std::uint32_t target = 0;   // index of a process, or a rank
  std::uint32_t payload = 0;  // index of a message or incident, a step or a revision
};

// The events that are due, by time; at one instant, by order of insertion.
class Timeline {
 public:
  std::uint64_t add(Instant at, Event::Kind kind, std::uint32_t target, std::uint32_t payload = 0) {
    queue_.push({at, ++entered_, kind, target, payload});
    return entered_;
  }
  bool empty() const { return queue_.empty(); }
  Event take() {
    const Event next = queue_.top();
    queue_.pop();
    return next;
  }
  Instant next_at() const { return queue_.top().at; }

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  std::priority_queue<Event, std::vector<Event>, Later> queue_;
  std::uint64_t entered_ = 0;
};

// The parts of a simulated job. Plain data; Simulation changes them.

// A decision log that can fail.
class SimulatedLog : public DecisionLog {
 public:
  tl::expected<void, std::string> append(const LogEntry& entry) override {
    if (failing > 0) return tl::unexpected(std::string("it fails"));
    entries.push_back(entry);
    return {};
  }
  bool has_commit(Revision revision) const {
    for (const LogEntry& entry : entries) {
      const auto* verdict = std::get_if<Verdict>(&entry);
      if (verdict != nullptr && verdict->revision == revision && verdict->commit()) return true;
    }
    return false;
  }

  int failing = 0;  // log_fails incidents that go on; above 0 it fails
  std::vector<LogEntry> entries;
};

// One process of one rank: a trainer and an agent.
struct Process {
  struct Promise {
    Revision revision;
    Step fence;
  };
  struct Collecting {
    Step step;
    std::string epoch;
    std::uint64_t revision = 0;
  };

  std::uint32_t index = 0;
  Rank rank;
  std::string id;
  Step start;
  bool alive = true;
  bool left = false;
  bool twin = false;     // started while another process of the rank was alive
  bool unknown = false;  // to the present coordinator, because the log was lost
  std::unique_ptr<StepGate> gate;
  std::unique_ptr<Member> member;

  // How many incidents of each kind go on.
  int process_stopped = 0;
  int trainer_stopped = 0;
  int agent_stopped = 0;
  int cut_up = 0;
  int cut_down = 0;
  std::vector<std::uint32_t> held_by;  // indices of those incidents, and of `costs` incidents
  Instant stopped_at{};
  bool cut_keeps = false;
  std::vector<std::pair<bool, std::uint32_t>> kept;  // messages of a cut that keeps: whether up, and index

  // The agent.
  bool to_start = false;
  bool started = false;
  int hub_generation = 0;  // of the coordinator that it is connected to; 0: none
  bool turn_due = false;   // it came while the agent was stopped
  Instant turn_at{};
  Instant turn_entered{};  // the earliest turn in the timeline
  Instant last_progress{};
  std::deque<std::uint32_t> inbox;  // messages that came while the agent was stopped
  std::optional<Instant> leave_by;
  std::map<std::uint64_t, Instant> sent;  // Hellos and Progresses, by number
  Instant lease_until{};                  // computed here, without asking the gate

  // The trainer.
  Instant step_time{};
  Step next;
  std::uint64_t boundary = 0;  // order of the valid boundary event; others are stale
  bool boundary_due = false;   // it came while the trainer was stopped
  bool waiting = false;        // at the gate
  Instant waiting_since{};
  Instant stopped_while_waiting{};
  bool to_leave = false;
  Instant rows_at{};           // when the newest rows are on disk
  std::uint64_t revision = 0;  // in force; 0: none, or off after a lapse
  std::string epoch;           // of that revision
  std::optional<Collecting> collecting;
  std::set<std::pair<std::string, std::uint64_t>> plans_in_force;  // so far, by epoch and revision
  Revision finished;
  OverheadMeter meter;
  std::int64_t cost = 0;  // of monitoring in a collected step, per mille of step_time
  std::optional<Promise> promise;
  // Epoch and revision to the incarnation in which it has promised.
  std::map<std::pair<std::string, std::uint64_t>, std::uint64_t> promised_in;
  // The max_wait of each plan that was offered to it, by config_sha256.
  std::map<std::string, Ticks> offered_waits;
  Ticks max_wait{2'000};  // of its newest promise; at first, of the hold at the start
  std::map<std::uint64_t, std::string> committed_in;  // revision to the epoch that sent the commit

  bool trainer_runs() const { return alive && process_stopped == 0 && trainer_stopped == 0; }
  bool agent_runs() const { return alive && process_stopped == 0 && agent_stopped == 0; }
};

// The coordinator, and what outlives it.
struct Hub {
  bool alive = false;
  int generation = 0;  // coordinators so far
  int stopped = 0;     // stop_hub incidents that go on
  std::string epoch;
  int epochs = 0;
  SimulatedLog log;
  std::size_t checked = 0;  // how many log entries check_decided() has checked
  std::unique_ptr<Coordinator> coordinator;
  std::deque<std::uint32_t> inbox;  // messages that came while it was stopped
  Instant last_turn{};
  bool file_due = false;    // it was saved while the coordinator was stopped
  bool log_failed = false;  // at any time
  std::uint64_t turns = 0;
  Ticks ticked{};                                               // the ticks of all coordinators
  std::vector<std::pair<Membership::Phase, std::string>> seen;  // of each rank: phase and process
};

// The messages sent to the ranks in one epoch.
struct EpochRecord {
  std::map<std::uint64_t, Verdict> commits;
  std::map<std::uint64_t, std::string> offered;  // revision to meaning() of its plan
  std::set<std::uint64_t> written_back;
  std::map<std::uint64_t, Instant> off;  // logged commits that are off, to when they were first sent
  Revision newest_logged;                // the newest logged commit that was sent
};

// The rows of one collected step of one process.
struct Row {
  std::string process_id;
  std::string epoch;
  std::uint64_t revision = 0;
  // The coordinator could not know of this step: its process was dropped, or was
  // never known. The rows may be under an older revision than those of other ranks.
  bool unknown = false;
};

class Rows {
 public:
  void add(Step step, Row row) { rows_[step.value].push_back(std::move(row)); }
  // The process was dropped. `heard`: the last step that the coordinator knows of it.
  void mark_unknown(const std::string& process_id, Step heard);
  // The first step that counts under two revisions; "" if there is none.
  std::string conflict() const;

 private:
  std::map<std::int64_t, std::vector<Row>> rows_;
};

// True if a plan collects a step. Implements the definition a second time, without Schedule.
bool is_collected(const Verdict& commit, Step step);
// How many steps from this one on a plan collects if no other follows.
std::int64_t collected_from(const Verdict& commit, Step from);

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
