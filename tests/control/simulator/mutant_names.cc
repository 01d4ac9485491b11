// SPDX-License-Identifier: Apache-2.0
#include "tests/control/simulator/mutant_names.h"

namespace gradmon {
namespace {

// Null for those that are left out. Without a default, so that the compiler reports a mutant without a name.
const char* name_of(Mutant mutant) {
  switch (mutant) {
    case Mutant::none:
    case Mutant::passes_over:
      return nullptr;
    case Mutant::least_fence:
      return "least_fence";
    case Mutant::ready_without_fence:
      return "ready_without_fence";
    case Mutant::no_second_look:
      return "no_second_look";
    case Mutant::lapsed_keeps_plan:
      return "lapsed_keeps_plan";
    case Mutant::lapsed_keeps_pending:
      return "lapsed_keeps_pending";
    case Mutant::lapse_not_final:
      return "lapse_not_final";
    case Mutant::one_commit_ahead:
      return "one_commit_ahead";
    case Mutant::waits_for_its_agent:
      return "waits_for_its_agent";
    case Mutant::no_end_check:
      return "no_end_check";
    case Mutant::lease_from_arrival:
      return "lease_from_arrival";
    case Mutant::second_promise:
      return "second_promise";
    case Mutant::answers_anew:
      return "answers_anew";
    case Mutant::verdict_without_plan:
      return "verdict_without_plan";
    case Mutant::silent_counts_as_gone:
      return "silent_counts_as_gone";
    case Mutant::sent_before_logged:
      return "sent_before_logged";
    case Mutant::old_incarnation_heard:
      return "old_incarnation_heard";
    case Mutant::evicted_counts_in:
      return "evicted_counts_in";
    case Mutant::effective_below_dropped:
      return "effective_below_dropped";
    case Mutant::forgets_promise_on_return:
      return "forgets_promise_on_return";
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
