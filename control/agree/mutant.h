// SPDX-License-Identifier: Apache-2.0
// Faults of the agreement that the simulator must catch, each one short
// condition where the right thing is done. The product has no trace of them:
// they exist where GRADMON_MUTANTS is defined, in gradmon_agree_mutants, which
// tests alone link.
#pragma once

#include <cstdint>

#ifdef GRADMON_MUTANTS
#include <functional>
#endif

namespace gradmon {

enum class Mutant : std::uint8_t {
  none,
  least_fence,                // effective = the least of the fences
  ready_without_fence,        // says Ready and runs on
  no_second_look,             // does not look again whether the trainer has passed the fence
  lapsed_keeps_plan,          // goes on under the plan in force
  lapsed_keeps_pending,       // keeps commits that are not yet in force
  lapse_not_final,            // a late acknowledgement makes it go on where the lease has run out
  one_commit_ahead,           // a newer commit replaces one that is to be in force before it
  waits_for_its_agent,        // the trainer stands at a fence until its agent takes it back
  no_end_check,               // does not look at the lease at the end of a step
  lease_from_arrival,         // counts the lease from when the acknowledgement arrived
  takes_a_second,             // a promised rank answers the next question before it has heard the verdict
  answers_anew,               // a repeated question gets another fence
  verdict_without_plan,       // a verdict holds for those alone who were asked
  silent_counts_as_gone,      // decides without the Ready of a rank that is not heard
  told_before_logged,         // a verdict is told that the log does not have
  old_incarnation_heard,      // takes messages of an older membership of a rank
  evicted_counts_in,          // acknowledges an evicted rank
  below_dropped,              // effective may lie below the last step of a rank that was dropped
  passes_over,                // takes a later off at its own step though it closes this rank's promise
  forgets_promise_on_return,  // a rank that says Hello again keeps neither promise nor lapse
};

#ifdef GRADMON_MUTANTS
// For all of the process: one thread, one history at a time.
inline Mutant chosen_mutant = Mutant::none;
inline std::function<void()> other_thread;

inline bool mutated(Mutant mutant) { return chosen_mutant == mutant; }
// Another thread may act between the accesses of a gate before and after this.
inline void let_other_thread_run() {
  if (other_thread) other_thread();
}
#else
constexpr bool mutated(Mutant) { return false; }
constexpr void let_other_thread_run() {}
#endif

}  // namespace gradmon
