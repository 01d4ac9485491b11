// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "control/agree/plan.h"

namespace gradmon {

// A plan that holds, with the step from which it does.
struct Commitment {
  Revision revision;
  PlanPtr plan;
  Step effective;
};

// What the training thread finds at a boundary that is not free.
struct Opening {
  bool wait = false;               // a promise forbids the step for now; nothing else is set
  std::optional<Commitment> swap;  // put this plan in force before the step
  bool collect = false;            // the step is to be collected
  bool ended = false;              // the plan in force has collected all; said once per plan
};

// The only thing the training thread touches each step, and the only place
// where it may wait for another rank. Two words: `current`, the step the trainer
// has published, and `gate`, the first step that the fast path may not begin.
//
// The safety argument (ARCHITECTURE.md, "The agreement, in short"): the trainer stores `current` and
// then loads `gate`; the agent stores `gate` and then loads `current` again. All
// four are sequentially consistent, so one of them sees the other, and a fence
// that has been promised is never passed unseen. Every store to `gate` is made
// under the mutex, by one function.
//
// Times are of a clock that counts suspension (CLOCK_BOOTTIME), with any origin.
//
// To lapse is to go on off: the promise is taken back, commits ahead are dropped,
// the plan in force ends at the next boundary, and the step at hand does not
// count. It comes by waiting at a fence longer than was promised, by a lease that
// has run out, or from the agent; it is final until rejoin().
class StepGate {
 public:
  using Clock = std::function<Ticks()>;

  // `start` is the first step that will be begun.
  explicit StepGate(Step start) : current_(start.value - 1), handled_{start.value - 1} {}
  StepGate(const StepGate&) = delete;
  StepGate& operator=(const StepGate&) = delete;

  // --- Training thread. ---
  // Publishes that step n is about to begin. True: begin it, nothing has changed.
  bool try_begin(Step n) noexcept {
    current_.store(n.value);
    return n.value < gate_.load();
  }
  // The slow path of the same step, after try_begin has said no. Never waits.
  Opening begin(Step n, Ticks now);
  // begin(n) until it does not say wait; between slices of at most 100 ms it
  // asks `interrupted`, and lapses where it says so: the step is free.
  Opening begin_or_wait(Step n, const Clock& clock, const std::function<bool()>& interrupted);
  // At the end of the step that begin() has last said to collect: whether its
  // rows count. They do not where the rank has lapsed since.
  bool still_counts(Ticks now);

  // --- Agent thread. ---
  Step current() const noexcept { return Step{current_.load()}; }
  // Promises not to begin a step ≥ the fence it returns, at least `lookahead`
  // (≥ 1) steps ahead of the trainer, until `settle`, `release`, or the trainer
  // has stood there for `max_wait` and lapses. kNever: it has lapsed, or is
  // abandoned, and promises nothing.
  Step promise(std::int64_t lookahead, Ticks max_wait);
  // Promises a given step, which the trainer must not have passed: only at the
  // start. Waiting there does not count as waiting for a verdict.
  void hold(Step fence, Ticks max_wait);
  // Takes the promise back.
  void release();
  // There is no agent any more: takes the promise back, and none is made again.
  void abandon();
  // This process has lost its place among the ranks: from the next boundary on
  // nothing is collected, and no promise is kept.
  void withdraw();
  // In one instant: the promise is replaced by `fence` (kNever: none), and what
  // holds is entered; neither where the rank has lapsed. False: the trainer has
  // already begun its effective step; the commitment is not entered.
  bool settle(const std::optional<Commitment>& commitment, Step fence = kNever);
  // From here on nothing is collected without a lease.
  void require_lease() { renew_lease(Ticks::min()); }
  void renew_lease(Ticks until);
  // Lapses where the plan in force, or one ahead, is on and the lease has run out.
  void check_lease(Ticks now);
  void lapse();
  bool lapsed() const;
  // A Hello of a lapsed rank has been answered.
  void rejoin();
  // How long the trainer has stood at its fence; 0 where it does not.
  Ticks standing(Ticks now) const;
  // How long it has stood at promised fences within the last `span`, each time
  // `max_wait` at most: what is longer was no wait for a verdict.
  Ticks waited_in(Ticks span, Ticks now) const;
  // What was put in force since the last call, with the step; in order.
  std::vector<std::pair<Revision, Step>> take_applied();
  // The plan in force, none before the first. Revision 0: off by a lapse.
  std::optional<Commitment> in_force() const;
  // Whether anything that is on is in force, not ended, or ahead.
  bool needs_lease() const;

 private:
  struct Wait {
    Ticks ended;
    Ticks lasted;
  };

  void publish();                            // Requires mutex_. The one function that stores the gate.
  bool enters_before(Step effective);        // Requires mutex_.
  Step begun() const;                        // Requires mutex_. The last step that may have begun.
  void lapse_from(Step n);                   // Requires mutex_. Off from step n.
  bool must_wait() const;                    // Requires mutex_.
  void enter(const Commitment& commitment);  // Requires mutex_.
  void end_wait(Ticks now);                  // Requires mutex_.

  // Own synchronisation.
  std::atomic<std::int64_t> current_;
  std::atomic<std::int64_t> gate_{kNever.value};
  std::condition_variable changed_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Step fence_ = kNever;
  Ticks max_wait_{2'000};                // at that fence
  bool held_from_start_ = false;         // the fence is hold()'s
  std::optional<Ticks> standing_since_;  // the trainer, at that fence
  std::deque<Wait> waits_;               // of the last ten minutes
  Ticks lease_until_ = Ticks::max();     // nobody asks for a lease
  bool lapsed_ = false;
  bool counts_ = false;  // the step that is collected; false once the rank has lapsed
  bool abandoned_ = false;
  std::deque<Commitment> ahead_;  // committed, not yet in force; rising effective steps
  std::optional<Commitment> in_force_;
  Schedule schedule_;  // of in_force_
  bool end_reported_ = true;
  // The last step begun on the slow path. Nothing changes between it and the
  // gate, so the gate is computed from here and not from `current`, which the
  // trainer may have published without having looked at the gate.
  Step handled_;
  std::vector<std::pair<Revision, Step>> applied_;
};

}  // namespace gradmon
