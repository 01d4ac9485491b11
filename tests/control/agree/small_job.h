// SPDX-License-Identifier: Apache-2.0
// A whole job in one thread: the real coordinator, members and gates, a memory
// register, a network that loses, doubles and delays by a seed. Time is ticked
// by hand.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "control/agree/coordinator.h"
#include "control/agree/member.h"
#include "control/agree/overhead_meter.h"
#include "control/agree/register.h"

namespace gradmon {

class SmallJob {
 public:
  struct Faults {
    double lose = 0;  // share of letters
    double twice = 0;
    int most_delay = 0;  // ticks of 10 ms
    std::uint64_t seed = 1;
  };

  // One rank: a gate, its member, and what its trainer has seen.
  struct Process {
    std::unique_ptr<StepGate> gate;
    std::unique_ptr<Member> member;
    std::uint64_t incarnation = 0;
    std::uint64_t revision = 0;                 // that it runs
    Step next;                                  // the step it will begin next
    std::map<std::int64_t, std::uint64_t> ran;  // step to revision
    std::vector<std::int64_t> collected;
    OverheadMeter meter;
    SkippedUpdates skipped;      // that it tells of
    OverheadMeter::Time cost{};  // of a collected step; a step takes 10 ms
    bool paused = false;         // its trainer
    bool deaf = false;           // its agent does nothing
    bool unheard = false;        // cut off from the network alone
    bool cut = false;            // from the network and the register; its agent lives
    bool started = false;
    bool left = false;
  };

  explicit SmallJob(int world, Faults faults);
  explicit SmallJob(int world);

  PlanPtr plan(bool on, std::int64_t times = 3, std::int64_t interval = 1) const;
  // For ever, with a budget.
  PlanPtr plan_within(double max_overhead, std::int64_t interval = 1) const;
  void begin(PlanPtr first);
  void propose(PlanPtr plan);
  void probe(std::string id, PlanPtr plan);
  // One tick of 10 ms: letters arrive, agents tick, each trainer tries `steps`.
  void tick(int steps = 1);
  bool tick_until(const std::function<bool()>& condition, int at_most = 5000, int steps = 1);
  void leave(int rank);

  Coordinator& coordinator() { return *coordinator_; }
  Process& process(int rank) { return processes_[static_cast<std::size_t>(rank)]; }
  int world() const { return static_cast<int>(processes_.size()); }
  bool all_run(std::uint64_t revision);
  // "" where no step was run under two revisions.
  std::string divergence() const;

  std::vector<WriteBack> write_backs;
  std::vector<ProbeResult> probed;
  std::vector<std::string> log;
  std::function<tl::expected<std::int64_t, std::string>(int rank, const Plan&)> can_carry_out;
  std::function<TargetList(int rank, const Plan*)> list_targets;

 private:
  struct InFlight {
    int arrives;
    bool up;
    Letter letter;
  };
  void post(bool up, const Letter& letter);
  void perform(CoordinatorActions actions);
  void perform(int rank, MemberActions actions);
  void train(int rank, int steps);

  Faults faults_;
  std::mt19937_64 random_;
  int now_ = 0;
  MemoryRegister verdicts_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<Process> processes_;
  std::deque<InFlight> network_;
};

}  // namespace gradmon
