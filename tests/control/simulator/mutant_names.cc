// SPDX-License-Identifier: Apache-2.0
#include "tests/control/simulator/mutant_names.h"

namespace gradmon {

const std::vector<NamedMutant>& all_mutants() {
  static const std::vector<NamedMutant> all{
      {"least_fence", Mutant::least_fence},
      {"ready_without_fence", Mutant::ready_without_fence},
      {"no_second_look", Mutant::no_second_look},
      {"lapsed_keeps_plan", Mutant::lapsed_keeps_plan},
      {"lapsed_keeps_pending", Mutant::lapsed_keeps_pending},
      {"lapse_not_final", Mutant::lapse_not_final},
      {"one_commit_ahead", Mutant::one_commit_ahead},
      {"waits_for_its_agent", Mutant::waits_for_its_agent},
      {"no_end_check", Mutant::no_end_check},
      {"lease_from_arrival", Mutant::lease_from_arrival},
      {"second_promise", Mutant::second_promise},
      {"answers_anew", Mutant::answers_anew},
      {"verdict_without_plan", Mutant::verdict_without_plan},
      {"silent_counts_as_gone", Mutant::silent_counts_as_gone},
      {"sent_before_logged", Mutant::sent_before_logged},
      {"old_incarnation_heard", Mutant::old_incarnation_heard},
      {"evicted_counts_in", Mutant::evicted_counts_in},
      {"effective_below_dropped", Mutant::effective_below_dropped},
      {"forgets_promise_on_return", Mutant::forgets_promise_on_return},
  };
  return all;
}

}  // namespace gradmon
