// SPDX-License-Identifier: Apache-2.0
// A whole job in one thread: the real coordinator, members and gates, a decision
// log in memory, and a network that loses, duplicates and delays messages, as a seed
// decides. The test advances the time.
#pragma once

#include <map>
#include <memory>
#include <random>

#include "control/agree/coordinator.h"
#include "control/agree/member.h"
#include "control/agree/overhead_budget.h"

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
    double lose = 0;       // share of messages
    double duplicate = 0;  // share of messages
    int max_delay = 0;     // ticks of 10 ms
    std::uint64_t seed = 1;
  };

  // One process of a rank: its gate, its member, and a record of its training.
  struct Process {
    std::string id;
    Rank rank;
    Step start;
    std::unique_ptr<StepGate> gate;
    std::unique_ptr<Member> member;
    std::uint64_t revision = 0;  // in force; 0: none, or off after a lapse
    Step next;                   // the step it will begin next
    // Every step, to the revision in force.
    std::map<std::int64_t, std::uint64_t> revision_of_step;
    // Collected steps whose rows count, to the revision in force.
    std::map<std::int64_t, std::uint64_t> revision_of_counted;
    std::vector<std::int64_t> collected;  // the steps of `revision_of_counted`
    std::optional<Step> collecting;       // the current step, if it is collected
    OverheadMeter meter;
    SkippedUpdates skipped;      // as reported in Progress
    OverheadMeter::Time cost{};  // of monitoring in a collected step; a step takes 10 ms
    double step_ms = 10;         // as reported in Progress
    Ticks longest_wait{};        // at a fence
    std::optional<Ticks> waiting_since;
    std::vector<std::string> warnings;
    bool alive = true;
    bool trainer_stopped = false;
    bool agent_stopped = false;
    bool partitioned = false;  // all messages from it and to it are lost
    bool connected = false;
    int coordinator_generation = 0;  // of the coordinator that it is connected to
    bool started = false;
    bool left = false;
    std::optional<Step> last_reported;  // in the newest Progress
  };

  explicit SmallJob(int world, Faults faults);
  explicit SmallJob(int world);

  PlanPtr plan(bool on, std::int64_t times = 3, std::int64_t interval = 1) const;
  // A plan that never ends, with a budget.
  PlanPtr plan_within(double max_overhead, std::int64_t interval = 1) const;
  void begin(PlanPtr first);
  // Begins with a plan that is on, and runs until it is in force on all ranks. Throws if it does not come
  // into force.
  void start_collecting(std::int64_t times = 1'000'000);
  // Begins off, and runs until all ranks have passed the step. Throws if they do not pass it.
  void train_off(std::int64_t step);
  void propose(PlanPtr plan);
  void capture(std::shared_ptr<Plan> richer);
  void dry_run(std::string id, PlanPtr plan);
  bool evict(int rank);
  bool cancel();
  // One tick of 10 ms: messages arrive, coordinator and agents tick, each trainer tries `steps` steps.
  void tick(int steps = 1);
  bool tick_until(const std::function<bool()>& condition, int at_most = 5000, int steps = 1);
  void run_ticks(int count, int steps = 1);
  void leave(int rank);
  // The process dies. Its hub reports the death to the coordinator.
  void kill(int rank);
  // Starts a new process of the rank, at step `start`.
  Process& start(int rank, Step start = Step{0});
  // Kills the rank's process and, once the coordinator has heard of that, starts the next one.
  Process& restart(int rank, Step start);
  // From now on the rank rejects every plan that is on, for this reason.
  void reject_on(int rank, const std::string& reason);
  // How many collected steps of the rank count during so many ticks.
  std::size_t counted_in(int ticks, int rank);

  void kill_coordinator();
  // `with_log`: in the same epoch, from its log. Otherwise the log is lost and a new epoch begins.
  void restart_coordinator(bool with_log, PlanPtr from_file = nullptr);

  Coordinator& coordinator() { return *coordinator_; }
  // The newest process of the rank.
  Process& process(int rank);
  std::deque<Process>& processes() { return processes_; }
  int world() const { return world_; }
  Ticks now() const { return now_ * kTick; }
  bool in_force_on_all(std::uint64_t revision);
  bool all_past(std::int64_t step);
  std::vector<HistoryEntry> history() { return coordinator_->journal().entries(); }
  HistoryEntry last_entry() { return history().back(); }
  bool committed(std::uint64_t revision);
  // The reason why a change is pending; "" if none is.
  std::string pending();
  // The first step that was run (or counted) under two revisions; "" if there is none.
  std::string divergence() const;
  std::string counted_divergence() const;

  static constexpr Ticks kTick{10};

  std::vector<WriteBack> write_backs;
  std::vector<DryRunResult> dry_runs;
  std::vector<std::string> log;
  std::vector<std::string> warnings;
  std::function<tl::expected<std::int64_t, std::string>(int rank, const Plan&)> can_carry_out;
  std::function<TargetList(int rank, const Plan*)> list_targets;
  // True: loses the message; null: only Faults decide.
  std::function<bool(bool up, const Envelope&)> should_lose;
  bool coordinator_paused = false;
  MemoryLog decisions;
  std::vector<Envelope> sent;  // every message that the coordinator has sent

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
  void update_connection(Process& process);
  void tick_agent(Process& process);
  void train(Process& process, int steps);
  void begin_step(Process& process, const Opening& opening);

  const int world_;
  Faults faults_;
  std::mt19937_64 random_;
  int now_ = 0;
  int generation_ = 0;  // coordinators so far
  int epochs_ = 0;
  bool running_ = false;
  std::string epoch_;
  std::unique_ptr<Coordinator> coordinator_;
  std::deque<Process> processes_;
  std::deque<InFlight> network_;
};

// A job that collects on all ranks, and has passed step 200.
struct CollectingJob : SmallJob {
  explicit CollectingJob(int world, std::int64_t times = 1'000'000) : SmallJob(world) {
    start_collecting(times);
  }
};

// A job that is off and has passed the step.
struct JobThatIsOff : SmallJob {
  JobThatIsOff(int world, std::int64_t step) : SmallJob(world) { train_off(step); }
};

}  // namespace gradmon
