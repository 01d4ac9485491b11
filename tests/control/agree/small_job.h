// SPDX-License-Identifier: Apache-2.0
// A whole job in one thread: the real coordinator, members and gates, a decision
// log in memory, a network that loses, doubles and delays by a seed. Time is
// ticked by hand.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "control/agree/coordinator.h"
#include "control/agree/member.h"
#include "control/agree/overhead_meter.h"

namespace gradmon {

// A decision log that can fail.
class MemoryLog : public DecisionLog {
 public:
  tl::expected<void, std::string> append(const LogEntry& entry) override {
    if (failing) return tl::unexpected(std::string("no space left on device"));
    entries.push_back(entry);
    return {};
  }

  bool failing = false;
  std::vector<LogEntry> entries;
};

class SmallJob {
 public:
  struct Faults {
    double lose = 0;  // share of messages
    double twice = 0;
    int most_delay = 0;  // ticks of 10 ms
    std::uint64_t seed = 1;
  };

  // One process of a rank: a gate, its member, and what its trainer has seen.
  struct Process {
    std::string id;
    Rank rank;
    Step start;
    std::unique_ptr<StepGate> gate;
    std::unique_ptr<Member> member;
    std::uint64_t revision = 0;                     // that it runs; 0: none, or off by a lapse
    Step next;                                      // the step it will begin next
    std::map<std::int64_t, std::uint64_t> ran;      // step to revision
    std::map<std::int64_t, std::uint64_t> counted;  // collected steps whose rows count, to their revision
    std::vector<std::int64_t> collected;            // those steps
    std::optional<Step> collecting;                 // the step at hand, where it is collected
    OverheadMeter meter;
    SkippedUpdates skipped;      // that it tells of
    OverheadMeter::Time cost{};  // of a collected step; a step takes 10 ms
    double step_ms = 10;         // that it tells of
    Ticks longest_stand{};
    std::optional<Ticks> stands_since;
    std::vector<std::string> warnings;
    bool alive = true;
    bool paused = false;   // its trainer
    bool deaf = false;     // its agent does nothing
    bool unheard = false;  // its messages are lost, both ways
    bool connected = false;
    int life = 0;  // of the coordinator that it is connected to
    bool started = false;
    bool left = false;
    std::optional<Step> last_told;  // by the newest Progress that was posted
  };

  explicit SmallJob(int world, Faults faults);
  explicit SmallJob(int world);

  PlanPtr plan(bool on, std::int64_t times = 3, std::int64_t interval = 1) const;
  // For ever, with a budget.
  PlanPtr plan_within(double max_overhead, std::int64_t interval = 1) const;
  void begin(PlanPtr first);
  void propose(PlanPtr plan);
  void dry_run(std::string id, PlanPtr plan);
  bool evict(int rank);
  bool cancel();
  // One tick of 10 ms: messages arrive, agents tick, each trainer tries `steps`.
  void tick(int steps = 1);
  bool tick_until(const std::function<bool()>& condition, int at_most = 5000, int steps = 1);
  void run_ticks(int count, int steps = 1);
  void leave(int rank);
  // The process ends without a word; its hub tells the coordinator.
  void kill(int rank, bool hub_tells = true);
  // Another process of that rank begins at `start`.
  Process& start(int rank, Step start = Step{0});

  void kill_coordinator();
  // With the log of the one before, or in a new epoch.
  void restart_coordinator(bool with_log, PlanPtr from_file = nullptr);

  Coordinator& coordinator() { return *coordinator_; }
  // The newest of that rank.
  Process& process(int rank);
  std::deque<Process>& processes() { return processes_; }
  int world() const { return world_; }
  Ticks now() const { return now_ * kTick; }
  bool all_run(std::uint64_t revision);
  bool all_past(std::int64_t step);
  std::vector<HistoryEntry> history() { return coordinator_->journal().entries(); }
  HistoryEntry last_entry() { return history().back(); }
  bool committed(std::uint64_t revision);
  // The rank that is awaited and so on; "" where nothing is pending.
  std::string pending();
  // "" where no step was run (or counted) under two revisions.
  std::string divergence() const;
  std::string counted_twice() const;
  // A message to one rank's newest process, as the coordinator would send it.
  void deliver(int rank, Message message);

  static constexpr Ticks kTick{10};

  std::vector<WriteBack> write_backs;
  std::vector<DryRunResult> dry_runs;
  std::vector<std::string> log;
  std::vector<std::string> warnings;
  std::function<tl::expected<std::int64_t, std::string>(int rank, const Plan&)> can_carry_out;
  std::function<TargetList(int rank, const Plan*)> list_targets;
  // Whether a message is lost; null: by chance alone.
  std::function<bool(bool up, const Envelope&)> loses;
  bool coordinator_paused = false;
  MemoryLog decisions;
  std::vector<Envelope> told;  // by the coordinator, all

 private:
  struct InFlight {
    int arrives;
    bool up;
    Envelope envelope;
  };
  void make_coordinator(std::string epoch);
  void post(bool up, Envelope envelope, const Process* from);
  void perform(CoordinatorActions actions);
  void perform(Process& process, MemberActions actions);
  void look_at_connection(Process& process);
  void tick_agent(Process& process);
  void train(Process& process, int steps);
  void begin_step(Process& process, const Opening& opening);

  const int world_;
  Faults faults_;
  std::mt19937_64 random_;
  int now_ = 0;
  int lives_ = 0;  // of the coordinator
  int epochs_ = 0;
  bool running_ = false;
  std::string epoch_;
  std::unique_ptr<Coordinator> coordinator_;
  std::deque<Process> processes_;
  std::deque<InFlight> network_;
};

}  // namespace gradmon
