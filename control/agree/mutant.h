// SPDX-License-Identifier: Apache-2.0
// Mutation testing: deliberate faults of the agreement that the simulator must catch. Each fault is one
// short condition in the code. The faults exist only if GRADMON_MUTANTS is defined, in the library
// gradmon_agree_mutants, which only tests link. The product contains none of them.
#pragma once

#include <cstdint>

#ifdef GRADMON_MUTANTS
#include <functional>
#endif

namespace gradmon {

enum class Mutant : std::uint8_t {
  none,
  least_fence,                // commits at the lowest fence
  ready_without_fence,        // sends Ready, but does not stop at the fence
  no_second_look,             // does not check again whether training has passed the new fence
  lapsed_keeps_plan,          // a lapse does not end the plan in force
  lapsed_keeps_pending,       // a lapse does not drop commits that are not yet in force
  lapse_not_final,            // a late acknowledgement lets a rank go on after its lease has run out
  one_commit_ahead,           // a newer commit replaces a commit that takes effect earlier
  waits_for_its_agent,        // training waits at a fence until the agent drops it, without a limit
  no_end_check,               // does not check the lease at the end of a step
  lease_from_arrival,         // counts the lease from the arrival of the acknowledgement
  second_promise,             // a rank makes a second promise before it knows the verdict on the first
  answers_anew,               // a repeated Prepare gets another fence
  verdict_without_plan,       // only the ranks that were asked get the verdict
  silent_counts_as_gone,      // decides without the Ready of a silent rank
  sent_before_logged,         // sends a verdict that is not in the log
  old_incarnation_heard,      // accepts messages of an older incarnation of a rank
  evicted_counts_in,          // acknowledges an evicted rank
  effective_below_dropped,    // the effective step may be below the last step of a dropped rank
  passes_over,                // applies a later commit although the verdict on its own promise is unknown
  forgets_promise_on_return,  // a new connection drops the rank's promise and lapse
};

#ifdef GRADMON_MUTANTS
// Global: one thread runs one simulation at a time.
inline Mutant chosen_mutant = Mutant::none;
inline std::function<void()> other_thread;

inline bool mutant_active(Mutant mutant) { return chosen_mutant == mutant; }
// Lets a test act as the other thread between two accesses of the gate.
inline void interleaving_point() {
  if (other_thread) other_thread();
}
#else
constexpr bool mutant_active(Mutant) { return false; }
constexpr void interleaving_point() {}
#endif

}  // namespace gradmon
