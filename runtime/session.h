// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "control/link/agent.h"
#include "control/step.h"
#include "gradmon/monitor.h"
#include "hooks/rows/target_match.h"
#include "runtime/collect/collection.h"
#include "runtime/collect/plan_settings.h"
#include "runtime/environment.h"
#include "runtime/launch_id.h"

namespace gradmon {

// Sets a flag in every child that this process forks during the guard's lifetime. A fork does not copy
// threads, so code that relies on threads must do nothing in the child.
class ForkGuard {
 public:
  explicit ForkGuard(std::atomic<bool>& flag);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  std::atomic<bool>& flag_;
};

// Notices that training continues, or a switch waits, while no step ends: a captured or compiled optimizer
// step does not call gradmon, so the step number does not change and a switch never comes. Pure. One thread;
// the caller passes the time.
class UnendedStep {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::seconds kPending{60};  // a switch waits for the step
  static constexpr std::chrono::minutes kCollecting{10};
  static constexpr std::int64_t kPasses = 64;  // or four times the known accumulation, if that is more
  static constexpr std::int64_t kAccumulations = 4;

  struct Seen {
    Step current;
    bool switch_pending = false;  // a committed plan waits for its step
    bool collecting = false;      // a plan that is on is in force
    std::int64_t passes = 0;      // TrainingPasses::training()
    std::int64_t evaluations = 0;
  };

  // `accumulation`: micro batches of a step; 1: unknown.
  UnendedStep(Rank rank, std::int64_t accumulation)
      : rank_(rank), most_passes_(std::max(kPasses, kAccumulations * accumulation)) {}

  // The sentence for users; "" as long as steps end. Call it often. The sentence holds until the next step.
  const std::string& look(const Seen& seen, Time now);

 private:
  std::string sentence(const std::string& since) const;

  const Rank rank_;
  const std::int64_t most_passes_;
  bool looked_ = false;
  Step current_;
  Time moved_;          // the step began
  Time pending_since_;  // a switch waits
  bool pending_ = false;
  std::string found_;
};

// The implementation of a Monitor and the composition root. Training thread, except for members that
// say otherwise.
class Monitor::Session {
 public:
  // Throws std::invalid_argument in static mode if the config is unusable, and other standard
  // exceptions if the system is out of memory or threads.
  Session(std::filesystem::path config, Step start, Environment environment, LaunchIdSource launch,
          RendezvousExchange exchange_notes, ParallelGroups groups);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // `interrupted` is called at least every 100 ms while the training thread waits at a boundary. If it
  // returns true, the wait ends and the rank lapses; the caller must then call stop(), because the next step
  // is not agreed on. It must not throw.
  void set_interrupt_check(std::function<bool()> interrupted) noexcept {
    interrupted_ = std::move(interrupted);
  }
  // Sets the source of call stacks in the program's language. Call it before the first watch().
  void set_stack_source(StackSource stack) noexcept {
    const std::lock_guard lock(mutex_);
    stack_ = std::move(stack);
  }
  // Reads names, tensors and identities from the chunk. Assigns the chunk's vpp_stage, authors and scopes.
  void watch(WatchedModel chunk);
  // Replaces the chunk with that number (vpp_stage). `chunk` counts the calls of watch(), from 0.
  void watch_again(int chunk, WatchedModel model);
  Loop step() noexcept {
    current_.value += 1;
    if (inactive()) return loop_;
    if (!gate_.try_begin(current_)) {
      boundary();
    } else if (every_step_) {
      collection_->end_step_between(samples_);
      collection_->begin_step(current_, Collection::Collect::no, samples_);
      every_step_ = collection_->needs_every_step();
    }
    return loop_;
  }
  void update(torch::optim::Optimizer& optimizer, const Closure& closure);
  // True if this step is collected, or measured for the flight recorder.
  bool collecting() const noexcept {
    return !inactive() && collection_ && (collection_->collecting() || collection_->recording());
  }
  // The collection that reads this step: pass it what happens in the step. Null unless collecting().
  Collection* collection() noexcept { return collecting() ? collection_.get() : nullptr; }
  // Returns true if scalar() has a use for values.
  bool takes_scalars() const noexcept {
    return collecting() || (!inactive() && collection_ && collection_->awaits_scalars());
  }
  // Sets the factor in this step's gradients (GradScaler), of one chunk (vpp_stage) or of all. Call it in a
  // collected step, before its backward.
  void gradient_scale(double scale, std::optional<int> chunk) noexcept {
    if (collecting() && scale > 0) collection_->gradient_scale(scale, chunk);
  }
  // A GradScaler has skipped the optimizer's step of this iteration.
  void note_skipped_update() noexcept {
    if (inactive()) return;
    const std::lock_guard lock(mutex_);
    if (skipped_.last != current_) skipped_ = {skipped_.count + 1, current_};
  }
  // Replaces the warnings that status() shows about the program's use of the monitor.
  void note_warnings(std::vector<std::string> warnings) noexcept {
    const std::lock_guard lock(mutex_);
    program_warnings_ = std::move(warnings);
  }
  void note_attached(std::vector<std::string> lines) noexcept {  // see TargetList::attached
    const std::lock_guard lock(mutex_);
    attached_ = std::move(lines);
  }
  int rank() const noexcept { return environment_.rank.value; }
  void samples(std::int64_t count) noexcept {
    if (count <= 0) return;
    samples_ += count;
    if (current_ == start_) resumed_samples_->count_first(count);
  }
  void scalar(std::string_view name, double value) noexcept;
  void expert_load(std::string_view layer, const std::vector<std::int64_t>& tokens) noexcept;
  std::vector<Metric> metrics() const;
  std::vector<Alert> alerts() const;  // Any thread.
  // Verb on, off or set. Assigns the request id.
  void send_command(Command command) noexcept;
  void stop(std::optional<std::chrono::milliseconds> at_most = {}) noexcept;
  Status status() const;  // Any thread.

  // True in a forked child: all members do nothing, and no thread may be joined.
  bool forked() const noexcept { return forked_; }

 private:
  bool inactive() const noexcept { return stopped_ || forked_.load(std::memory_order_relaxed); }
  void boundary() noexcept;
  void log_output_complete();
  void pass_gate();
  void swap(const Commitment& commitment);
  void assign_authors(WatchedModel& model, int chunk) const;
  void hold_names(std::vector<TargetName> names);
  void set_static(const Command& command);
  void fix_directory(const Config* config);
  // Sets prepared_ to a Collection with that queue capacity. Requires mutex_.
  void prepare_collection(std::int64_t capacity);
  // Agent thread.
  tl::expected<std::int64_t, std::string> can_carry_out(const Plan& plan);
  tl::expected<void, std::string> prepare(std::int64_t capacity);
  CollectingReport report();
  void look_for_unended_step();  // Requires mutex_.
  void raise(const AlertReport& report);
  TargetList list_targets(const Plan* plan) const;
  std::shared_ptr<const std::vector<TargetName>> names() const;
  AgentCalls agent_calls();

  // Constant after construction.
  const Environment environment_;
  const ParallelGroups groups_;
  const std::filesystem::path config_;
  const Step start_;
  const std::shared_ptr<RunDirectory> directory_;          // own synchronisation
  const std::shared_ptr<ResumedSamples> resumed_samples_;  // used to append to an earlier job's output

  mutable PlanConfigs configs_;  // own synchronisation
  std::atomic<bool> forked_{false};
  const ForkGuard fork_guard_{forked_};
  SharedGate gate_;  // own synchronisation

  // Training thread only.
  std::optional<Commitment> static_plan_;  // the newest; static mode only
  Step current_;
  WatchedModel model_;
  int chunk_count_ = 0;
  std::int64_t samples_ = 0;                   // seen by all ranks so far
  std::map<std::string, int> request_counts_;  // requests in step request_step_, and the count of each
  Step request_step_;
  bool stopped_ = false;
  bool directory_settled_ = false;     // fix_directory() was called
  bool every_step_ = false;            // collection_->needs_every_step() as the step began
  std::function<bool()> interrupted_;  // may be null
  Loop loop_ = Loop::goes_on;

  // Agent thread only. Number of targets of a config that matched last: the repeated proposal of a plan is
  // answered at once, even if matching takes longer than the coordinator waits for the answer.
  struct Matching {
    std::string config_sha256;
    std::shared_ptr<const std::vector<TargetName>> names;
    std::int64_t matches;
  };
  std::optional<Matching> last_matching_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  StackSource stack_;  // null: none
  // Made, with its writer thread, when a plan is first offered, and again if the plan's queue capacity
  // differs; moved to collection_ when a plan that is on comes into force. Null before and after.
  std::unique_ptr<Collection> prepared_;
  // Written under mutex_ by the training thread only, which may read them without it.
  std::shared_ptr<const std::vector<TargetName>> names_ = std::make_shared<std::vector<TargetName>>();
  std::unique_ptr<Collection> collection_;  // null until a plan is on
  SkippedUpdates skipped_;
  std::vector<std::string> program_warnings_;  // about the program's use of the monitor
  std::vector<std::string> attached_;          // as TargetList::attached
  std::string fatal_error_;                    // the reason why collection has failed; "": it has not
  UnendedStep unended_;
  std::string unended_step_;  // the sentence found; "": steps end

  // Keep last: its thread calls this object, so it must end first.
  Agent agent_;
};

// For bindings to other languages, which have no torch::nn::Module to watch and no torch::optim::Optimizer to
// call.
class MonitorBinding {
 public:
  using Session = Monitor::Session;
  // Null: it could not be set up. Lives as long as the monitor.
  static Session* session(const Monitor& monitor) noexcept { return monitor.session_.get(); }
};

}  // namespace gradmon
