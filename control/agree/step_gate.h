// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "control/agree/plan.h"

namespace gradmon {

// A committed plan and its effective step.
struct Commitment {
  Revision revision;
  PlanPtr plan;
  Step effective;
};

// The result of the slow path at a step boundary.
struct Opening {
  bool wait = false;               // a promise forbids the step for now; the fields below are not set
  Ticks longest_wait{};            // until then begin() must be called again
  std::optional<Commitment> swap;  // swap to this plan before the step
  bool collect = false;            // the step is to be collected
  bool ended = false;              // the plan in force has collected its last step; true once per plan
};

// Decides at each step boundary whether the training thread may begin the step. Pure; one thread, or two that
// share a SharedGate (control/link/agent.h). The fast path uses two words: `current`, the step that the
// training thread has published, and `gate`, the first step that the fast path may not begin.
//
// The safety argument (ARCHITECTURE.md, "The agreement, in short"): the training thread stores `current`
// and then loads `gate`; the agent stores `gate` and then loads `current` again. All four accesses are
// sequentially consistent, so at least one thread sees the other's store, and no promised fence is passed
// unseen. Only publish() stores `gate`, under the lock.
//
// Times are of a clock that also runs during suspension (CLOCK_BOOTTIME).
//
// To lapse means: the promise is dropped, commits that are not in force yet are dropped, the plan in
// force ends at the next boundary, and the current step does not count. A rank lapses if it waits at
// a fence for longer than `max_wait`, if its lease runs out, or if the agent says so. A lapse is final
// until rejoin().
class StepGate {
 public:
  // `start`: the first step of the training loop.
  explicit StepGate(Step start) : current_(start.value - 1), handled_{start.value - 1} {}
  virtual ~StepGate() = default;
  StepGate(const StepGate&) = delete;
  StepGate& operator=(const StepGate&) = delete;

  // --- Training thread. ---
  // Publishes that step n is about to begin. True: begin it; nothing has changed.
  bool try_begin(Step n) noexcept {
    current_.store(n.value);
    return n.value < gate_.load();
  }
  // The slow path of the same step, after try_begin returned false. Never waits.
  Opening begin(Step n, Ticks now);
  // Call it at the end of a collected step. True if its rows count: the rank has not lapsed during the step.
  bool step_still_valid(Ticks now);

  // --- Agent thread. ---
  Step current() const noexcept { return Step{current_.load()}; }
  // Promises not to begin the step it returns (the fence) or any later one. The fence is at least
  // `lookahead` (≥ 1) steps ahead of the training thread. The promise ends with settle(), release(), or
  // a lapse after `max_wait` at the fence. Returns kNever, and promises nothing, after a lapse.
  Step promise(std::int64_t lookahead, Ticks max_wait);
  // Promises a given fence, which the training thread must not have passed. Used at the start only;
  // waiting there does not count as waiting for a verdict.
  void hold(Step fence, Ticks max_wait);
  // Drops the promise.
  void release();
  // The agent has ended without a message to the coordinator. Drops the promise; later promises are refused.
  // The lease, if one is required, ends at once: the coordinator will not wait for it. Allocates nothing.
  void abandon();
  // This process is no longer a rank of the job. Drops the promise; from the next boundary on nothing is
  // collected.
  void withdraw();
  // Atomically replaces the promise by `fence` (kNever: none) and enters the commitment. Does neither
  // after a lapse. Returns false, without entering the commitment, if the training thread has already
  // begun its effective step.
  bool settle(const std::optional<Commitment>& commitment, Step fence = kNever);
  // From now on nothing is collected without a lease.
  void require_lease() { renew_lease(Ticks::min()); }
  void renew_lease(Ticks until);
  // Lapses if the lease has run out and the plan in force or a later commit is on.
  void check_lease(Ticks now);
  void lapse();
  bool lapsed() const;
  // The Hello after a lapse has been answered.
  void rejoin();
  // The training thread's current wait at its fence; 0 if it does not wait.
  Ticks waiting_for(Ticks now) const;
  // Its waits at promised fences within the last `span`. Each wait counts at most `max_wait`.
  Ticks waited_in(Ticks span, Ticks now) const;
  // The commitments that came into force since the last call, in order.
  std::vector<std::pair<Revision, Step>> take_applied();
  // The plan in force; none before the first. Revision 0: off after a lapse.
  std::optional<Commitment> in_force() const;
  // True while a committed plan waits for its step.
  bool commitment_ahead() const;
  // True if a plan that is on is in force and not ended, or committed for a later step.
  bool needs_lease() const;

 private:
  // For two threads.
  virtual void lock() const {}
  virtual void unlock() const {}
  virtual void notify() {}  // the gate has changed: the training thread need not wait any longer

  // Has the lock.
  class Entered;
  struct Wait {
    Ticks ended;
    Ticks lasted;
  };

  // Changes the members that the lock guards, publishes the gate, and wakes the training thread.
  template <typename Change>
  void apply(Change change);
  void publish();                            // Requires the lock. The only function that stores `gate_`.
  bool enters_before(Step effective);        // Requires the lock.
  Step begun() const;                        // Requires the lock. The last step that may have begun.
  void lapse_from(Step n);                   // Requires the lock. Off from step n.
  bool must_wait() const;                    // Requires the lock.
  void enter(const Commitment& commitment);  // Requires the lock.
  void end_wait(Ticks now);                  // Requires the lock.

  // Own synchronisation.
  std::atomic<std::int64_t> current_;
  std::atomic<std::int64_t> gate_{kNever.value};

  // Guarded by the lock.
  Step fence_ = kNever;
  Ticks max_wait_{2'000};               // at that fence
  bool held_from_start_ = false;        // the fence was set by hold()
  std::optional<Ticks> waiting_since_;  // start of training's current wait at that fence
  std::deque<Wait> waits_;              // of the last ten minutes
  Ticks lease_until_ = Ticks::max();    // max: no lease is required
  bool lapsed_ = false;
  bool step_valid_ = false;  // the current step is collected, and the rank has not lapsed during it
  bool abandoned_ = false;
  std::deque<Commitment> ahead_;  // committed, not yet in force; rising effective steps
  std::optional<Commitment> in_force_;
  Schedule schedule_;  // of in_force_
  bool end_reported_ = true;
  // The last step begun on the slow path. Nothing changes between this step and the gate, so the gate is
  // computed from this step. It is not computed from `current`, because the training thread may have
  // published that step without having loaded the gate.
  Step handled_;
  std::vector<std::pair<Revision, Step>> applied_;
};

}  // namespace gradmon
