// SPDX-License-Identifier: Apache-2.0
// The parts of a simulated job. Plain data; Simulation moves them.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/agree/coordinator.h"
#include "control/agree/member.h"
#include "control/agree/overhead_meter.h"
#include "control/agree/step_gate.h"
#include "tests/control/simulator/timeline.h"

namespace gradmon {

// A decision log that can fail.
class SimulatedLog : public DecisionLog {
 public:
  tl::expected<void, std::string> append(const LogEntry& entry) override {
    if (failing > 0) return tl::unexpected(std::string("it fails"));
    entries.push_back(entry);
    return {};
  }
  bool has_verdict(Revision revision) const {
    for (const LogEntry& entry : entries) {
      const auto* verdict = std::get_if<Verdict>(&entry);
      if (verdict != nullptr && verdict->revision == revision && verdict->commit()) return true;
    }
    return false;
  }

  int failing = 0;  // incidents
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
  bool twin = false;     // of a process that lives
  bool unknown = false;  // to a coordinator that has lost its log
  std::unique_ptr<StepGate> gate;
  std::unique_ptr<Member> member;

  // How many incidents hold it, each.
  int process_stopped = 0;
  int trainer_stopped = 0;
  int agent_stopped = 0;
  int cut_up = 0;
  int cut_down = 0;
  std::vector<std::uint32_t> held_by;  // those incidents
  Instant stopped_at{};
  bool cut_keeps = false;
  std::vector<std::pair<bool, std::uint32_t>> kept;  // whether up, which message: of a cut that loses none

  // The agent.
  bool to_start = false;
  bool started = false;
  int life = 0;           // of the coordinator that it is connected to; 0: none
  bool turn_due = false;  // it came while the agent had no time
  Instant turn_at{};
  Instant turn_entered{};  // the earliest in the timeline
  Instant last_progress{};
  std::deque<std::uint32_t> inbox;  // messages that wait for the agent's time
  std::optional<Instant> leave_by;
  std::map<std::uint64_t, Instant> sent;  // by number
  Instant lease_until{};                  // as can be seen from outside

  // The trainer.
  Instant step_time{};
  Step next;
  std::uint64_t boundary = 0;  // the one in the timeline that counts
  bool boundary_due = false;   // it came while the trainer had no time
  bool waiting = false;        // at the gate
  Instant waiting_since{};
  Instant stopped_while_waiting{};
  bool to_leave = false;
  Instant rows_at{};           // when the newest are on disk
  std::uint64_t revision = 0;  // in force; 0: none, or off by a lapse
  std::string epoch;           // of that
  std::optional<Collecting> collecting;
  std::set<std::pair<std::string, std::uint64_t>> ran;  // plans, by epoch and revision
  Revision finished;
  OverheadMeter meter;
  std::int64_t cost = 0;  // of a collected step, per mille of its time
  std::optional<Promise> promise;
  // Epoch and revision to the membership in which it has promised.
  std::map<std::pair<std::string, std::uint64_t>, std::uint64_t> promised_in;
  Ticks max_wait{2'000};                              // of the newest promise
  std::map<std::uint64_t, std::string> committed_in;  // revision to the epoch that told it

  bool trainer_runs() const { return alive && process_stopped == 0 && trainer_stopped == 0; }
  bool agent_runs() const { return alive && process_stopped == 0 && agent_stopped == 0; }
};

// The coordinator and what it leaves behind.
struct Hub {
  bool alive = false;
  int life = 0;
  int stopped = 0;  // incidents
  std::string epoch;
  int epochs = 0;
  SimulatedLog log;
  std::size_t checked = 0;  // of its entries
  std::unique_ptr<Coordinator> coordinator;
  std::deque<std::uint32_t> inbox;  // while it is stopped
  Instant last_turn{};
  bool file_due = false;    // it was saved while the coordinator was stopped
  bool log_failed = false;  // once
  std::uint64_t turns = 0;
  Ticks ran{};                                                  // in all lives, as its ticks count
  std::vector<std::pair<Membership::Phase, std::string>> seen;  // of each rank, with its process
};

// One epoch, as it was told.
struct EpochRecord {
  std::map<std::uint64_t, Verdict> commits;
  std::map<std::uint64_t, std::string> offered;  // revision to what it means
  std::set<std::uint64_t> written_back;
  std::map<std::uint64_t, Instant> off;  // commits that are off and in the log, to when they were told first
  Revision sure;                         // the newest commit that was told and is in the log
};

}  // namespace gradmon
