// SPDX-License-Identifier: Apache-2.0
// The parts of a simulated job. Plain data; Simulation changes them.
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

// What was sent to the ranks in one epoch.
struct EpochRecord {
  std::map<std::uint64_t, Verdict> commits;
  std::map<std::uint64_t, std::string> offered;  // revision to meaning() of its plan
  std::set<std::uint64_t> written_back;
  std::map<std::uint64_t, Instant> off;  // logged commits that are off, to when they were first sent
  Revision newest_logged;                // the newest logged commit that was sent
};

}  // namespace gradmon
