// SPDX-License-Identifier: Apache-2.0
// The parts of a simulated job. Plain data; Simulation moves them.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/agree/coordinator.h"
#include "control/agree/member.h"
#include "control/agree/overhead_meter.h"
#include "control/agree/register.h"
#include "control/agree/step_gate.h"
#include "tests/control/simulator/record.h"
#include "tests/control/simulator/timeline.h"

namespace gradmon {

// What comes to an agent: a letter, an answer of the disk, a word of the trainer.
struct Mail {
  enum class Kind { begin, propose, up, down, member_answer, coordinator_answer, proof, rows };

  Kind kind = Kind::up;
  Letter letter;
  tl::expected<Verdict, std::string> held;  // the answer of a register; its error, that of a proof
  PlanPtr plan;
  Revision revision;
  Home home = Home::undecided;  // that shows the nonce, or not
};

// A call of the register, made by the disk thread of a process one by one.
struct DiskCall {
  Mail::Kind answer = Mail::Kind::begin;
  Home home = Home::undecided;
  Verdict verdict;
};

// One process of one rank: a trainer, an agent and a disk thread.
struct Process {
  struct Promise {
    Revision revision;
    Step fence;
    PlanPtr plan;
    std::optional<Instant> asked;  // the register, first
  };

  std::uint32_t index = 0;
  std::size_t launch = 0;
  Rank rank;
  bool alive = true;
  bool left = false;     // by itself, in the end
  bool usurped = false;  // another process has its seat
  Conduct seen;
  std::unique_ptr<StepGate> gate;
  std::unique_ptr<Member> member;
  std::unique_ptr<Coordinator> coordinator;  // in rank 0

  // How many incidents hold it, each.
  int process_stopped = 0;
  int trainer_stopped = 0;
  int agent_stopped = 0;
  int cut_up = 0;
  int cut_down = 0;
  int register_hangs = 0;
  int register_fails = 0;
  std::vector<std::uint32_t> held_by;  // those incidents
  Instant stopped_at{};
  bool cut_keeps = false;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> kept;  // whom, which mail: of a cut that loses none

  // The agent.
  Instant born{};
  bool to_start = false;
  bool started = false;
  bool begun = false;  // its coordinator has
  PlanPtr asked;       // by the newest Prepare
  Revision finished;
  Revision owed;  // decided before it came, as its Welcome says
  std::string epoch;
  std::uint64_t incarnation = 0;
  bool turn_due = false;  // it came while the agent had no time
  Instant turn_at{};
  Instant turn_entered{};  // the earliest in the timeline
  Instant last_turn{};
  Instant last_progress{};
  std::deque<std::uint32_t> inbox;  // mails that wait for the agent's time
  std::deque<Letter> own_letters;   // from rank 0's member to its coordinator
  std::optional<Instant> leave_by;

  // The disk thread.
  std::deque<DiskCall> disk;
  bool disk_busy = false;
  Instant register_well_since{};

  // The trainer.
  Instant step_time{};
  Step next;
  std::uint64_t boundary = 0;  // the one in the timeline that counts
  bool boundary_due = false;   // it came while the trainer had no time
  bool waiting = false;        // at the gate
  Instant waiting_since{};
  PlanPtr waits_under;  // asked about when it began to wait
  Instant stopped_while_waiting{};
  bool to_leave = false;
  Instant rows_at{};  // when the newest are on disk
  std::uint32_t revision = 0;
  OverheadMeter meter;
  std::int64_t cost = 0;  // of a collected step, per mille of its time
  std::optional<Promise> promise;
  Revision promised;  // the newest it ever promised for

  bool trainer_runs() const { return alive && process_stopped == 0 && trainer_stopped == 0; }
  bool agent_runs() const { return alive && process_stopped == 0 && agent_stopped == 0; }
};

// One launch of the job: an epoch with its register.
struct Launch {
  std::string epoch;
  std::string launcher_id;
  Step start;
  std::vector<Process*> seats;  // the newest process of each rank; null: not yet
  std::vector<int> lives;
  std::shared_ptr<std::map<Home, MemoryRegister>> verdicts;
  LaunchRecord record;
  std::map<std::pair<int, std::uint64_t>, Process*> routes;  // by rank and incarnation
  // A coupled job: who has begun the step that all are in.
  int begun = 0;
  int in_group = 0;
  std::vector<std::string> changes;      // request ids of what the user asked for
  std::set<std::uint64_t> written_back;  // revisions
};

}  // namespace gradmon
