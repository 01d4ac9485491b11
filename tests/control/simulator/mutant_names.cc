// SPDX-License-Identifier: Apache-2.0
#include "tests/control/simulator/mutant_names.h"

namespace gradmon {
namespace {

// Null for those that are left out. Without a default, so that the compiler reports a mutant without a name.
const char* name_of(Mutant mutant) {
#define GRADMON_NAME(name) \
  case Mutant::name:       \
    return #name;
  switch (mutant) {
    case Mutant::none:
    case Mutant::passes_over:
      return nullptr;
      GRADMON_NAME(least_fence)
      GRADMON_NAME(ready_without_fence)
      GRADMON_NAME(no_second_look)
      GRADMON_NAME(lapsed_keeps_plan)
      GRADMON_NAME(lapsed_keeps_pending)
      GRADMON_NAME(lapse_not_final)
      GRADMON_NAME(one_commit_ahead)
      GRADMON_NAME(waits_for_its_agent)
      GRADMON_NAME(no_end_check)
      GRADMON_NAME(lease_from_arrival)
      GRADMON_NAME(second_promise)
      GRADMON_NAME(answers_anew)
      GRADMON_NAME(verdict_without_plan)
      GRADMON_NAME(silent_counts_as_gone)
      GRADMON_NAME(sent_before_logged)
      GRADMON_NAME(old_incarnation_heard)
      GRADMON_NAME(evicted_counts_in)
      GRADMON_NAME(effective_below_dropped)
      GRADMON_NAME(forgets_promise_on_return)
  }
  return nullptr;
}

std::vector<NamedMutant> find_all() {
  std::vector<NamedMutant> all;
  for (unsigned value = 0; value < 256; ++value) {
    const auto mutant = static_cast<Mutant>(value);
    if (const char* const name = name_of(mutant)) all.push_back({name, mutant});
  }
  return all;
}

}  // namespace

const std::vector<NamedMutant>& all_mutants() {
  static const std::vector<NamedMutant> all = find_all();
  return all;
}

}  // namespace gradmon
