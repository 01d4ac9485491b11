// SPDX-License-Identifier: Apache-2.0
// A whole job, and the world it lives in, in one thread: the real coordinator,
// members, gates and register, driven by a virtual clock. The same script gives
// the same history, to the last letter.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/control/simulator/dice.h"
#include "tests/control/simulator/process.h"
#include "tests/control/simulator/script.h"
#include "tests/control/simulator/timeline.h"

namespace gradmon {

struct Outcome {
  std::string wrong;           // "" or the first promise that was broken
  std::uint64_t digest = 0;    // of all that happened
  std::uint64_t switches = 0;  // plans that were put in force
  std::uint64_t commits = 0;   // verdicts, by kind
  std::uint64_t aborts = 0;
  std::uint64_t missed = 0;   // reported by a rank
  std::uint64_t budgets = 0;  // commits that keep a budget
  std::uint64_t steps = 0;    // of all ranks
  std::uint64_t letters = 0;
};

class Simulation {
 public:
  explicit Simulation(Script script);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Tells every event, one line each.
  void tell(std::function<void(const std::string&)> listener) { tell_ = std::move(listener); }
  Outcome run();

 private:
  // --- The world. ---
  void handle(const Due& due);
  void settle_down();
  void open_launch(Step start, std::int64_t world);
  void spawn(std::size_t launch, Rank rank);
  void end_process(Process& process);
  void release_from_verdicts(Process& process);
  void begin_incident(const Incident& incident, std::uint32_t index);
  void end_incident(const Incident& incident);
  void hold(Process& process, Incident::Kind kind, int by);
  void resume(Process& process);
  void trouble_register(Process& process, Incident::Kind kind, int by);
  void trouble_every_register(Incident::Kind kind, int by);
  void relaunch(const Incident& incident);
  bool propose(const Incident& incident);  // whether there was somebody to ask
  PlanPtr plan_of(const Incident& incident);
  tl::expected<std::int64_t, std::string> can_carry_out(Rank rank, const Plan& plan) const;
  Roster::Liveness liveness_of(const std::string& id) const;
  Launch& launch_of(const Process& process) { return launches_[process.launch]; }
  Process* seat_of(std::int64_t rank);  // of the newest launch; null: none lives

  // --- Agents. ---
  void deliver(Process& process, std::uint32_t mail);
  void read(Process& process, std::uint32_t mail);
  void turn(Process& process);
  void wake(Process& process, Instant at);
  void schedule_turn(Process& process);
  void report(Process& process, bool soon);
  void try_to_go(Process& process);
  void to_member(Process& process, const Letter& letter);
  void perform(Process& process, MemberActions actions);
  void perform(Process& process, CoordinatorActions actions);
  void note(Process& process, const Message& message);
  void post_up(Process& process, Message message);
  void post_down(Process& coordinator, Letter letter);
  void send(Process& member, Process& to, Letter letter);
  void check_write_back(const Process& process, const CoordinatorActions& actions);
  std::uint32_t store(Mail mail);
  void call_disk(Process& process, Mail::Kind answer, Home home, Verdict verdict);
  tl::expected<Verdict, std::string> decide(Process& process, const DiskCall& call);
  void start_disk(Process& process);
  void end_disk(Process& process);

  // --- Trainers. ---
  void reach_boundary(Process& process);
  void try_step(Process& process);
  void begin_waiting(Process& process);
  void begun(Process& process, Step step, bool collects);
  void schedule_boundary(Process& process);
  void join_collective(Process& process);
  void complete_collective(Launch& launch);
  void overtake_agent(Process& process);  // between two accesses of its gate
  void check_promise(Process& process, Step step);
  void check_breach(Process& process, const Process::Promise& promise, Step step);
  void check_start(Process& process, Step step);
  void check_wait(const Process& process);

  // --- The verdict. ---
  void fail(const std::string& what);
  void tell(const Process& process, const Mail& mail) const;
  void tell_line(const std::string& line) const;
  std::string why_not_settled();
  std::string changes_without_end(const Coordinator& coordinator) const;
  void mix(std::uint64_t value) { digest_ = (digest_ ^ value) * 0x100000001b3u; }

  const Script script_;
  Dice dice_;
  Timeline timeline_;
  Instant now_{};
  int hangs_everywhere_ = 0;  // incidents
  int fails_everywhere_ = 0;
  std::int64_t lose_ = 0;   // per mille
  std::int64_t twice_ = 0;  // per mille
  std::int64_t delay_ = 0;  // ms
  std::deque<Process> processes_;
  std::deque<Launch> launches_;
  std::vector<Incident> proposals_;  // a plan's file identity has the index
  std::vector<Mail> mails_;
  std::vector<std::uint32_t> free_mails_;
  Process* acting_ = nullptr;  // whose agent has its turn
  std::uint64_t digest_ = 0xcbf29ce484222325u;
  std::string wrong_;
  Outcome outcome_;
  std::function<void(const std::string&)> tell_;
};

// The history of a script.
Outcome simulate(const Script& script);

}  // namespace gradmon
