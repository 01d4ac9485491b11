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
  least_fence,            // effective = the least of the fences
  no_register,            // an unheard rank aborts alone
  ready_without_fence,    // says Ready and runs on
  no_second_look,         // does not look again whether the trainer has passed the fence
  forgets_on_return,      // a rank that comes back does not read the register
  leaves_open_on_return,  // reads it, and does not close what is open
  takes_a_second,         // a busy rank answers the next question before it has heard the verdict
  answers_anew,           // a repeated question gets another fence
  verdict_without_plan,   // holds for those alone who were asked
  silent_counts_as_gone,  // decides without the Ready of a rank that is not heard
  one_register,           // for two epochs
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
